"""Named random streams and digests: the only sources of randomness in training.

A stream is a position-independent name: (root seed, purpose, client name or content digest, …). The same name
gives the same numbers whatever ran before, so rows that a client forgot cannot shift what others draw. Generation,
ticket, time, path and history are never part of a name.
"""

from __future__ import annotations

import hashlib
import hmac
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splitwiper.exclusive import borrowed

Part = str | int | bytes
Generators = tuple[Any, Any, Tensor]
"""The states of Python's, NumPy's and torch's global generators."""
GlobalState = tuple[Generators, list[Tensor]]
"""The same, and the states of all GPUs' generators."""


def encode(parts: Iterable[Part]) -> bytes:
    """Encode parts as bytes, each with its type and length, so that no two lists of parts collide."""
    out = bytearray()
    for part in parts:
        kind, raw = (
            (b"b", part)
            if isinstance(part, bytes)
            else (b"s", part.encode())
            if isinstance(part, str)
            else (b"i", str(int(part)).encode())
        )
        out += kind + len(raw).to_bytes(8, "little") + raw
    return bytes(out)


def digest(*parts: Part) -> str:
    """Return the SHA-256 of the encoded parts, in hex."""
    return hashlib.sha256(encode(parts)).hexdigest()


def mac(key: bytes, *parts: Part) -> bytes:
    """Return the HMAC-SHA-256 of the encoded parts under a secret key."""
    return hmac.digest(key, encode(parts), "sha256")


def seeded_key(seed: int, client: str) -> bytes:
    """Return a client key for experiments that must be repeatable bit for bit: it is not secret."""
    return hashlib.sha256(encode([seed, "client-key", client])).digest()


@dataclass(frozen=True)
class Stream:
    """A named source of random numbers.

    >>> a, b = Stream(7, "order", "north"), Stream(7, "order", "south")
    >>> bool((a.permutation(5) == a.permutation(5)).all()), a.number == b.number
    (True, False)
    """

    seed: int
    purpose: str
    name: Part = ""
    content: bytes = b""

    @property
    def number(self) -> int:
        """A 63-bit seed that is a pure function of the stream's name."""
        raw = hashlib.sha256(encode([self.seed, self.purpose, self.name, self.content])).digest()
        return int.from_bytes(raw[:8], "little") >> 1

    def generator(self) -> torch.Generator:
        """Return a fresh CPU generator at the start of this stream."""
        return torch.Generator().manual_seed(self.number)

    def permutation(self, n: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return a permutation of ``range(n)``."""
        return np.random.Generator(np.random.Philox(key=self.number)).permutation(n)


@contextmanager
def isolated_rng(stream: Stream) -> Iterator[None]:
    """Run code that only knows the global generators (dropout, ``reset_parameters``) on a named stream.

    Python's, NumPy's and torch's global generators (CUDA's too, if it is in use) are saved, seeded from the
    stream, and restored on exit. Other threads of this program wait meanwhile (see `exclusive`).
    """
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []

    def read() -> GlobalState:
        return cpu_generators(), [torch.cuda.get_rng_state(device) for device in devices]

    def write(state: GlobalState) -> None:
        set_cpu_generators(state[0])
        # devices are listed once, at the start: one that is first used inside has nothing to be restored
        for device, kept in zip(devices, state[1], strict=True):
            torch.cuda.set_rng_state(kept, device)

    with borrowed(read, write):
        begin(stream)
        yield


def begin(stream: Stream) -> None:
    """Put all global generators at the start of a stream; only within `isolated_rng`, which restores them."""
    torch.default_generator.manual_seed(stream.number)  # torch.manual_seed also looks for devices: 1 ms per call
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(stream.number)
    random.seed(stream.number)
    np.random.seed(stream.number % 2**32)


def cpu_generators() -> Generators:
    """Return the states of the CPU's global generators."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def set_cpu_generators(state: Generators) -> None:
    """Restore the states of the CPU's global generators."""
    random.setstate(state[0])
    np.random.set_state(state[1])
    torch.set_rng_state(state[2])


def same_generators(mine: Generators, others: Generators) -> bool:
    """Return whether two sets of generators have the same states."""
    arrays = all(np.array_equal(a, b) for a, b in zip(mine[1], others[1], strict=True))
    return mine[0] == others[0] and arrays and bool((mine[2].numpy() == others[2].numpy()).all())


def state_digest(state: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> str:
    """Return the SHA-256 of tensors' names, dtypes, shapes and bytes, and of metadata, in an order of its own."""
    out = hashlib.sha256()
    for key, value in sorted((metadata or {}).items()):
        out.update(encode(["metadata", key, value]))
    # dtype and shape are digested too: the same bytes as other numbers are another state
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        out.update(encode([name, str(tensor.dtype), *tensor.shape]))
        out.update(tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return out.hexdigest()
