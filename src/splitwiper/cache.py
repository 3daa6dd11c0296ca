"""Shuffled batches from memory-mapped shards: the one way rows reach a training loop, on clients and server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splitwiper.wire import Label, Shard

Array = np.ndarray[Any, np.dtype[Any]]


class Cache:
    """Several shards as one table. Rows are numbered in the order of the shards.

    Batches are copied into memory that torch aligned: results do not depend on where a file happened to be mapped.
    """

    def __init__(self, shards: Sequence[Shard], labels: Sequence[Label], *, names: Sequence[str]) -> None:
        self._shards = [s for s in shards if s.rows]
        self._starts = np.cumsum([0, *(s.rows for s in self._shards)])
        self.names = tuple(names)  # in the order asked for, whatever the order in the files
        table = {label: code for code, label in enumerate(labels)}
        # code of the shard's own table -> code of the whole table
        self._codes = [np.array([table[x] for x in s.labels], np.int64) for s in self._shards]

    def __len__(self) -> int:
        return int(self._starts[-1])

    def blocks(self, name: str, rows: int = 4096) -> Iterator[Array]:
        """A column in row order, in blocks whose size does not depend on how rows lie in shards."""
        for start in range(0, len(self), rows):
            yield self._gather(name, np.arange(start, min(start + rows, len(self)))).numpy()

    def batch(self, index: Array) -> tuple[dict[str, Tensor], Tensor]:
        """The rows at ``index``, in that order, and their label codes."""
        codes = torch.empty(len(index), dtype=torch.int64)
        for number, here, local in self._places(index):
            codes.numpy()[here] = self._codes[number][self._shards[number].codes[local]]
        return {name: self._gather(name, index) for name in self.names}, codes

    def _places(self, index: Array) -> Iterator[tuple[int, Array, Array]]:
        """For each shard with rows at ``index``: its number, where they go, and their numbers in the shard."""
        owner = np.searchsorted(self._starts, index, side="right") - 1
        for number in np.unique(owner).tolist():
            here = np.flatnonzero(owner == number)
            yield number, here, index[here] - self._starts[number]

    def _gather(self, name: str, index: Array) -> Tensor:
        like = self._shards[0].columns[name]
        kind = torch.from_numpy(np.empty(0, like.dtype)).dtype
        out = torch.empty((len(index), *like.shape[1:]), dtype=kind)
        for number, here, local in self._places(index):
            out.numpy()[here] = self._shards[number].columns[name][local]
        return out


def to_device(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Tensors on a device."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}
