"""Sources of a row's random words: by its place in a shard, or by its content.

Uploads go by place. The stream's name holds a digest of the surviving rows, so every generation has fresh noise, and a
run that never had the forgotten rows has the same. Predictions go by content: asking again gives the same noise, so
nobody can average it away by asking often, and it spends nothing new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from splitwiper.errors import DataError
from splitwiper.privacy.stream import SecureStream
from splitwiper.seeding import Part, encode
from splitwiper.wire.columns import Array


class NoiseSource(Protocol):
    """A source of random words for the rows of a batch, the same however rows are divided into batches."""

    def words(self, name: Sequence[Part], kind: str, *, first: int, rows: int, width: int) -> Tensor:
        """Return integers of NumPy's ``kind`` for ``rows`` rows of the batch from ``first`` on: rows × width."""

    def check(self, rows: int) -> None:
        """Refuse a batch that this source has no words for."""


@dataclass(frozen=True)
class ByPlace:
    """Words by a row's number in its shard; copies of a row under several codes are separate rows."""

    stream: SecureStream
    start: int = 0
    """The number of the batch's first row."""

    def words(self, name: Sequence[Part], kind: str, *, first: int, rows: int, width: int) -> Tensor:
        """See `NoiseSource`."""
        words = self.stream.part(*name).words((self.start + first) * width, rows * width, kind)
        return torch.from_numpy(words).reshape(rows, width)

    def check(self, rows: int) -> None:
        """See `NoiseSource`."""
        if self.start < 0:
            raise DataError(f"the batch starts at row {self.start}: rows of a shard are counted from 0.")


@dataclass(frozen=True)
class ByContent:
    """Words by a row's content (see `row_contents`)."""

    stream: SecureStream
    contents: Sequence[bytes]

    def words(self, name: Sequence[Part], kind: str, *, first: int, rows: int, width: int) -> Tensor:
        """See `NoiseSource`."""
        part, out = self.stream.part(*name), np.empty((rows, width), kind)
        for row, content in enumerate(self.contents[first : first + rows]):
            out[row] = part.part(content).words(0, width, kind)
        return torch.from_numpy(out)

    def check(self, rows: int) -> None:
        """See `NoiseSource`."""
        if rows != len(self.contents):
            raise DataError(f"{rows} rows came with the contents of {len(self.contents)}: give one for each.")


def row_contents(inputs: Mapping[str, Tensor | Array]) -> list[bytes]:
    """Return a digest of every row's inputs: names, types, shapes and bytes."""
    arrays: list[Array] = []
    prefix = b""  # the same for all rows
    for name, values in sorted(inputs.items()):
        array = np.ascontiguousarray(values.cpu() if isinstance(values, Tensor) else values)
        prefix += encode([name, array.dtype.str, *array.shape[1:]])
        arrays.append(array)
    counts = set(map(len, arrays))
    if len(counts) != 1:
        raise DataError(f"inputs have {sorted(counts)} rows: give at least one input, and as many rows of each.")
    digests = []
    for parts in zip(*arrays, strict=True):
        content = b"".join(part.tobytes() for part in parts)
        digests.append(hashlib.sha256(prefix + content).digest())
    return digests
