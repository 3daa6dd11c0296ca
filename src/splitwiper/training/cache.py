"""Memory-mapped shards as one table: the single way in which rows reach a training loop, on clients and server."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from splitwiper.wire import Column, Label, Shard
from splitwiper.wire.codecs import decode
from splitwiper.wire.columns import Array, torch_dtype

Parts = dict[str, Tensor]
"""A batch as shards store it: columns by name, `CODE`, and `OWNER` if shards have something fitted of their own."""
CODE, OWNER = "@code", "@owner"
_WIDE = 1 << 18
"""Smallest copy, in bytes, that is worth starting torch's threads."""
_PAGE = 4096


class Cache:
    """Several shards as one table. Rows are numbered in the order of the shards.

    Batches are copied into memory allocated by torch: results do not depend on where a file happened to be mapped.

    Args:
        shards: the files, all written with the same codec.
        labels: the labels of the whole table; codes point into them.
        names: the columns to return, in this order, whatever the order in the files.
        columns: the columns as the cut sends them; needed only to decode.
    """

    def __init__(
        self, shards: Sequence[Shard], labels: Sequence[Label], *, names: Sequence[str], columns: Sequence[Column] = ()
    ) -> None:
        self._shards = [shard for shard in shards if shard.rows]
        self.names = tuple(names)
        self._tensors: dict[tuple[int, str], Tensor] = {}
        self._columns = {column.name: column for column in columns}
        self.codec = self._shards[0].codec if self._shards else "none"
        code_of = {label: code for code, label in enumerate(labels)}
        self._codes: list[Array] = []  # per shard: code of its own table -> code of the whole table
        starts = [0]
        for shard in self._shards:
            self._codes.append(np.array(list(map(code_of.__getitem__, shard.labels)), np.int64))
            starts.append(starts[-1] + shard.rows)
        self._starts = np.array(starts)

    def __len__(self) -> int:
        return int(self._starts[-1])

    # --- stored rows ---------------------------------------------------------------------------------------

    def buffers(self, rows: int, device: torch.device | None = None, *, pinned: bool = False) -> Parts:
        """Return empty tensors for a batch of this many rows."""
        first = self._shards[0]
        parts: Parts = {}
        for name in self.names:
            column = first.columns[name]
            kind = torch_dtype(column.dtype)
            parts[name] = torch.empty((rows, *column.shape[1:]), dtype=kind, device=device, pin_memory=pinned)
        for name in (CODE, OWNER) if first.fitted else (CODE,):
            parts[name] = torch.empty(rows, dtype=torch.int64, device=device, pin_memory=pinned)
        return parts

    @property
    def width(self) -> int:
        """Bytes of one row in a batch."""
        return sum(tensor.nbytes for tensor in self.buffers(1).values())

    def gather(self, index: Array, out: Parts | None = None) -> Parts:
        """Return the rows at ``index``, in that order: in the CPU tensors of ``out``, or in new memory.

        Sorted indices are fastest.
        """
        parts = self.buffers(len(index)) if out is None else out
        # Rows of one shard that follow each other in the index are copied together; `edges` are where it changes.
        # `side="right"` passes over shards' ends: a row that begins a shard belongs to it and not to the one before.
        owner = np.searchsorted(self._starts, index, side="right") - 1
        edges = [0, *(np.flatnonzero(np.diff(owner)) + 1).tolist(), len(index)]
        for start, stop in pairwise(edges):
            if start == stop:
                continue
            number = int(owner[start])
            shard, local = self._shards[number], index[start:stop] - self._starts[number]
            for name, tensor in parts.items():
                target = tensor[start:stop]
                if name == CODE:
                    target.numpy()[:] = self._codes[number][shard.codes[local]]
                elif name == OWNER:
                    target.fill_(number)
                elif target.nbytes >= _WIDE:  # copied by all threads
                    torch.index_select(self._mapped(number, name), 0, torch.from_numpy(local), out=target)
                else:  # mode="clip" writes straight into `out`; indices are in range
                    np.take(shard.columns[name], local, axis=0, out=target.numpy(), mode="clip")
        return parts

    def _mapped(self, number: int, name: str) -> Tensor:
        """Return a mapped column as a tensor. It is read-only: torch warns about that, but nothing writes to it."""
        if (number, name) not in self._tensors:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                self._tensors[number, name] = torch.from_numpy(self._shards[number].columns[name])
        return self._tensors[number, name]

    def touch(self, index: Array) -> None:
        """Read the rows at ``index`` from disk, one byte of each page, without copying them."""
        owner = np.searchsorted(self._starts, index, side="right") - 1
        for number in np.unique(owner):
            shard, local = self._shards[number], index[owner == number] - self._starts[number]
            for name in self.names:
                column = shard.columns[name]
                if column.flags.c_contiguous and column[:1].nbytes:
                    flat = column.reshape(len(column), -1).view(np.uint8)
                    flat[:, ::_PAGE][local].max(initial=0)

    def decoder(self, device: torch.device, dtype: torch.dtype = torch.float32) -> Callable[[Parts], dict[str, Tensor]]:
        """Return a function from stored parts to the tensors that cross the cut, computed on ``device``."""
        tables: dict[str, dict[str, Tensor]] = {}  # what was fitted, with one entry per shard
        for name, fitted in self._shards[0].fitted.items():
            for key in fitted:
                rows = torch.stack([shard.fitted[name][key] for shard in self._shards])
                tables.setdefault(name, {})[key] = rows.to(device)

        def run(parts: Parts) -> dict[str, Tensor]:
            out: dict[str, Tensor] = {}
            for name in self.names:
                column = self._columns.get(name)
                if column is None:  # rows that were never encoded
                    out[name] = parts[name]
                else:
                    fitted, owner = tables.get(name), parts.get(OWNER)
                    out[name] = decode(parts[name], column, self.codec, fitted, owner=owner, dtype=dtype)
            return out

        return run

    # --- decoded rows, on the CPU --------------------------------------------------------------------------

    def batch(self, index: Array) -> tuple[dict[str, Tensor], Tensor]:
        """Return the rows at ``index``, in that order, and their label codes."""
        parts = self.gather(index)
        return self.decoder(torch.device("cpu"))(parts), parts[CODE]

    def blocks(self, name: str, rows: int = 4096) -> Iterator[Array]:
        """Yield a stored column in row order, in blocks whose size does not depend on the division into shards."""
        for start in range(0, len(self), rows):
            index = np.arange(start, min(start + rows, len(self)))
            yield self.gather(index, {name: self.buffers(len(index))[name]})[name].numpy()


def to_device(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Return tensors on a device. Copies from a GPU block, since nothing else would wait for them."""
    return {name: tensor.to(device, non_blocking=device.type == "cuda") for name, tensor in tensors.items()}
