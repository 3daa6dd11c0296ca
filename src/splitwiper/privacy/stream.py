"""Cryptographic random bytes: AES-256 in counter mode, under a key derived from the client's.

A stream has a name, and can be read at any place without reading what comes before. Without the client's key its bytes
cannot be distinguished from random ones; with it they can be computed again, which exactness requires. No generator
of torch, NumPy or Python is involved.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from splitwiper.config import Noise
from splitwiper.errors import ConfigError
from splitwiper.extras import check_installed
from splitwiper.seeding import Part, mac
from splitwiper.wire.columns import Array

_ZEROS = bytes(1 << 18)  # encrypted, they become the stream
_BLOCK = 16  # bytes in a block of AES
_NEEDS = {"laplace": ("cryptography",), "gaussian": ("cryptography", "dp_accounting"), "none": ()}


@dataclass(frozen=True)
class SecureStream:
    """A named stream of secret random words.

    Notes:
        Two different values with noise from the same stream and place are as good as sent in the clear, since their
        difference is. So a name must contain everything that the values are computed from.
    """

    secret: bytes = field(repr=False)

    def part(self, *name: Part) -> SecureStream:
        """Return a separate stream within this one."""
        return SecureStream(mac(self.secret, "part", *name))

    def words(self, start: int, count: int, kind: str = "<i4") -> Array:
        """Return words ``start`` to ``start + count`` of a stream of integers, of 32 bits or as ``kind`` says."""
        per = _BLOCK // np.dtype(kind).itemsize
        lead = start % per  # words of the first block that were not asked for
        raw = np.empty(lead + count, kind)
        self._fill(raw, start // per)
        return raw[lead:]

    def _fill(self, raw: Array, block: int) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        cipher = Cipher(algorithms.AES(self.secret), modes.CTR(block.to_bytes(16, "big"))).encryptor()
        out = raw.view(np.uint8).data
        for at in range(0, len(out), len(_ZEROS)):
            here = out[at : at + len(_ZEROS)]
            cipher.update_into(memoryview(_ZEROS)[: len(here)], here)


def secure_stream(key: bytes, purpose: str, *content: Part) -> SecureStream:
    """Return the stream for a client's key, a purpose, and the released content.

    Args:
        key: the client's secret key.
        purpose: the use of the noise, such as 'upload' or 'predict'.
        content: everything that the released values depend on: a digest of the surviving rows for an upload, and in
            either case of the frozen half.

    Raises:
        ConfigError: the package for it is not installed, or the key is too short.
    """
    check_noise("laplace")
    if len(key) < 16:
        raise ConfigError(
            f"a key of {len(key)} bytes is too short for noise: give at least 16, 32 from a secure source."
        )
    return SecureStream(mac(key, "noise", purpose, *content))


def check_noise(noise: Noise | str) -> None:
    """Refuse a mechanism that is not available here.

    Raises:
        ConfigError: its library is not installed.
    """
    mechanism = noise if isinstance(noise, str) else noise.mechanism
    for package in _NEEDS[mechanism]:
        check_installed(package, f"mechanism = {mechanism!r}", extra="plus", otherwise="set mechanism = 'none'")
