"""Messages between clients that the server relays but cannot read, and secret random draws that all clients share.

The group's key comes from an invitation secret that clients exchange outside the server. Messages are padded, so that
their length reveals nothing, and bound to sender, sequence number and all earlier messages. Any holder of the secret
can read and write as any member: the group trusts its members to be curious, not to lie.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from dataclasses import dataclass, field
from typing import Any

from splitwiper.errors import ConfigError, CorruptError
from splitwiper.extras import check_installed
from splitwiper.seeding import Part, encode, mac

SIZE = 4096
"""Messages are padded to a multiple of this many bytes."""
_NONCE = 12
_LEAST = 16


def invitation() -> str:
    """Return a fresh invitation secret, to be passed to every client outside the server."""
    return secrets.token_urlsafe(32)


def check_sealing() -> None:
    """Fail early where messages cannot be sealed.

    Raises:
        ConfigError: the package cryptography is not installed.
    """
    check_installed("cryptography", "hiding labels", extra="plus")


@dataclass(frozen=True)
class GroupKey:
    """The key that all clients of one federation share."""

    federation: str
    raw: bytes = field(repr=False)

    @classmethod
    def of(cls, invitation: str, *, federation: str) -> GroupKey:
        """Derive the key from an invitation.

        Raises:
            ConfigError: the secret is too short.
        """
        if len(invitation) < _LEAST:
            raise ConfigError(
                f"the invitation secret has {len(invitation)} characters and must have at least {_LEAST}: make one "
                "with splitwiper.masking.sealing.invitation(), and give every client the same. The server could guess "
                "one that people make up."
            )
        # HKDF-SHA-256 (RFC 5869) with one block of output
        extracted = hmac.digest(b"splitwiper invitation", invitation.encode(), "sha256")
        return cls(federation, hmac.digest(extracted, encode(["group", federation]) + b"\x01", "sha256"))

    def derive(self, *purpose: Part) -> bytes:
        """Derive a key for one purpose."""
        return mac(self.raw, *purpose)

    def seal(self, message: Any, *bound: Part) -> bytes:
        """Encrypt a message for the group; it opens only where ``bound`` is the same."""
        plain = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
        room = -(-(len(plain) + 4) // SIZE) * SIZE  # rounded up; 4 bytes hold the length
        nonce = os.urandom(_NONCE)
        padded = len(plain).to_bytes(4, "little") + plain.ljust(room - 4, b"\0")
        sealed: bytes = self._cipher().encrypt(nonce, padded, encode([self.federation, *bound]))
        return nonce + sealed

    def open(self, sealed: bytes, *bound: Part) -> Any:
        """Decrypt a sealed message.

        Raises:
            CorruptError: it was altered, is bound to another place, or was sealed with another invitation.
        """
        from cryptography.exceptions import InvalidTag

        try:
            padded = self._cipher().decrypt(sealed[:_NONCE], sealed[_NONCE:], encode([self.federation, *bound]))
        except (InvalidTag, ValueError) as problem:
            raise CorruptError(
                "a sealed message cannot be read: it was altered, or comes from another federation or invitation."
            ) from problem
        return json.loads(padded[4 : 4 + int.from_bytes(padded[:4], "little")])

    def _cipher(self) -> Any:
        check_sealing()
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        return ChaCha20Poly1305(self.derive("seal"))


class Draws:
    """A stream of numbers that every holder of the key draws alike, and that look random to everybody else.

    >>> Draws(b"key", "demo").shuffled([1, 2, 3]) == Draws(b"key", "demo").shuffled([1, 2, 3])
    True
    """

    def __init__(self, key: bytes, *name: Part) -> None:
        self._key, self._count = mac(key, "draws", *name), 0

    def below(self, limit: int) -> int:
        """Draw a number from 0 to ``limit`` − 1, uniformly (by rejection)."""
        reach = 2**64 - 2**64 % limit  # a multiple of the limit: above it, small numbers would come more often
        while True:
            self._count += 1
            raw = hmac.digest(self._key, self._count.to_bytes(8, "little"), "sha256")
            if (value := int.from_bytes(raw[:8], "little")) < reach:
                return value % limit

    def shuffled(self, items: list[Any]) -> list[Any]:
        """Return the items in random order (Fisher–Yates)."""
        shuffled = list(items)
        for last in range(len(shuffled) - 1, 0, -1):
            other = self.below(last + 1)
            shuffled[last], shuffled[other] = shuffled[other], shuffled[last]
        return shuffled
