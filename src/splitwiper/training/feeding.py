"""How batches reach the training device: read ahead on the CPU; resident on the GPU, or streamed to it.

All feeds return the same bytes in the same order, so the choice affects only time and memory.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from splitwiper.exclusive import own_pool
from splitwiper.training.cache import CODE, Cache, Parts
from splitwiper.wire.columns import Array

_log = logging.getLogger("splitwiper")
_AHEAD = 1 << 18
"""Smallest batch, in bytes, for which reading the next one in another thread pays."""
_BLOCK = 1 << 25
_READERS = 4
_SHARE = 0.6
"""Share of the free GPU memory that a cache may take; the rest is for the step."""


Decode = Callable[[Parts], dict[str, Tensor]]


class Feed(Protocol):
    """Batches on a device."""

    decode: Decode
    """From a batch to the tensors that cross the cut."""

    def epoch(self, batches: Sequence[Array]) -> Iterator[Parts]:
        """Yield the batches in turn. On a GPU, each is valid until the next is requested: nets must not keep them."""
        ...


def feed_for(
    rows: Cache, device: torch.device, largest: int, *, dtype: torch.dtype = torch.float32, resident: bool = True
) -> Feed:
    """Return the fastest feed that fits.

    Args:
        rows: the cache to train on.
        device: the training device.
        largest: the number of rows of the largest batch.
        dtype: the dtype to decode coded floats to.
        resident: whether a GPU may hold the whole cache, if it fits.
    """
    decode = rows.decoder(device, dtype)
    if device.type != "cuda":
        return AheadFeed(rows, decode, ahead=rows.width * largest >= _AHEAD)
    if resident:
        free = torch.cuda.mem_get_info(device)[0] + _reusable(device)
        try:
            for kind in (DecodedFeed, ResidentFeed):
                if kind.need(rows, dtype) <= _SHARE * free:
                    return kind(rows, decode, device, largest)
        except torch.OutOfMemoryError:
            free = 0
        _log.warning(
            "the cache of %.1f GB does not fit into the GPU's memory (%.1f GB free): batches are streamed from disk.",
            rows.width * len(rows) / 1e9,
            free / 1e9,
        )
    return StreamedFeed(rows, decode, device, largest)


def _reusable(device: torch.device) -> int:
    """Return the bytes that torch has reserved and does not use."""
    return torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


class AheadFeed:
    """Batches in CPU memory. During training on one, the pages of the next are read from disk if necessary.

    The copy itself waits for its turn and is made by all threads: a thread that copies in parallel with the computation
    would only make both wait for each other.
    """

    def __init__(self, rows: Cache, decode: Decode, *, ahead: bool) -> None:
        self._rows, self.decode, self._ahead = rows, decode, ahead

    def epoch(self, batches: Sequence[Array]) -> Iterator[Parts]:
        """Yield the batches in turn."""
        if not self._ahead:
            yield from map(self._read, batches)
            return
        with own_pool(1) as reader:
            for index, following in zip(batches, [*batches[1:], None], strict=True):
                parts = self._read(index)
                if following is not None:
                    reader.submit(self._rows.touch, following)
                yield parts

    def _read(self, index: Array) -> Parts:
        """Return a batch in memory of its own: a net may keep it, to look at it again in the next step."""
        parts = self._rows.buffers(len(index))
        self._rows.gather(index, parts)
        return parts


class ResidentFeed:
    """The whole cache in GPU memory, as stored; a batch is gathered there, into tensors that never move."""

    def __init__(self, rows: Cache, decode: Decode, device: torch.device, largest: int) -> None:
        self.decode = decode
        self._all: Parts = {}
        for start, parts in _uploaded(rows, device):
            for name, tensor in self._kept(parts).items():
                if name not in self._all:
                    self._all[name] = tensor.new_empty((len(rows), *tensor.shape[1:]))
                self._all[name][start : start + len(tensor)] = tensor
        self._batch = {name: tensor.new_empty((largest, *tensor.shape[1:])) for name, tensor in self._all.items()}
        self._order = torch.empty(len(rows), dtype=torch.int64, device=device)

    @staticmethod
    def need(rows: Cache, dtype: torch.dtype) -> int:
        """Return the bytes of GPU memory for the whole cache."""
        return rows.width * len(rows)

    def _kept(self, parts: Parts) -> Parts:
        return parts

    def epoch(self, batches: Sequence[Array]) -> Iterator[Parts]:
        """Yield the batches in turn."""
        whole = torch.from_numpy(np.concatenate(batches))  # of all rows, or of some of them
        self._order[: len(whole)].copy_(whole)
        start = 0
        for size in map(len, batches):
            index = self._order[start : start + size]
            parts = {name: tensor[:size] for name, tensor in self._batch.items()}
            for name, tensor in parts.items():
                torch.index_select(self._all[name], 0, index, out=tensor)
            yield parts
            start += size


class DecodedFeed(ResidentFeed):
    """The whole cache in GPU memory, decoded once; maps have channels innermost there, which convolutions prefer."""

    def __init__(self, rows: Cache, decode: Decode, device: torch.device, largest: int) -> None:
        self._decode_once = decode
        self._maps: set[str] = set()
        super().__init__(rows, decode, device, largest)
        self.decode = self._restored

    @staticmethod
    def need(rows: Cache, dtype: torch.dtype) -> int:
        """Return the bytes of GPU memory for the whole cache."""
        parts = rows.buffers(1)
        rows.gather(np.arange(1), parts)
        shown = rows.decoder(torch.device("cpu"), dtype)(parts)
        return (parts[CODE].nbytes + sum(t.nbytes for t in shown.values())) * len(rows)

    def _kept(self, parts: Parts) -> Parts:
        out = self._decode_once(parts)
        self._maps = {name for name, tensor in out.items() if tensor.ndim == 4}
        flat = {name: out[name].permute(0, 2, 3, 1).contiguous() for name in self._maps}
        return {**out, **flat, CODE: parts[CODE]}

    def _restored(self, parts: Parts) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        for name, tensor in parts.items():
            if name != CODE:
                out[name] = tensor.permute(0, 3, 1, 2) if name in self._maps else tensor
        return out


def _uploaded(rows: Cache, device: torch.device) -> Iterator[tuple[int, Parts]]:
    """Yield the whole cache, block by block, on the GPU; several threads read ahead."""
    step = max(1, min(len(rows), _BLOCK // rows.width))
    starts = range(0, len(rows), step)

    def read(start: int) -> Parts:
        index = np.arange(start, min(start + step, len(rows)))
        parts = rows.buffers(len(index))
        rows.gather(index, parts)
        return parts

    with own_pool(_READERS) as readers:
        waiting = deque[Future[Parts]]()
        for place, start in enumerate(starts):
            while len(waiting) < _READERS and place + len(waiting) < len(starts):
                waiting.append(readers.submit(read, starts[place + len(waiting)]))
            yield start, {name: tensor.to(device) for name, tensor in waiting.popleft().result().items()}


class StreamedFeed:
    """Batches read ahead into pinned memory and copied to the GPU while it computes on the previous one."""

    def __init__(self, rows: Cache, decode: Decode, device: torch.device, largest: int) -> None:
        self._rows, self.decode = rows, decode
        self._batch = rows.buffers(largest, device)
        self._staged = [rows.buffers(largest, device) for _ in range(2)]
        self._pinned = [rows.buffers(largest, pinned=True) for _ in range(2)]
        self._arrived = [torch.cuda.Event() for _ in range(2)]
        self._taken = [torch.cuda.Event() for _ in range(2)]
        self._copying = torch.cuda.Stream(device)

    def epoch(self, batches: Sequence[Array]) -> Iterator[Parts]:
        """Yield the batches in turn."""
        # Three places for each batch: pinned memory (filled by the reading thread), staged on the GPU (filled by the
        # copying stream), and `_batch` (what the step reads; a graph needs it at one address). Two of the first two, so
        # that one is filled while the other is used. `_arrived` says that a staged batch is complete, `_taken` that the
        # step has its copy, so that the staged memory may be overwritten.
        computing = torch.cuda.current_stream()
        self._copying.wait_stream(computing)  # which allocated the buffers
        with own_pool(1) as reader:
            coming = reader.submit(self._send, batches[0], 0)
            for number, index in enumerate(batches):
                coming.result()
                which = number % 2
                computing.wait_event(self._arrived[which])
                parts = {name: tensor[: len(index)] for name, tensor in self._batch.items()}
                for name, tensor in parts.items():
                    tensor.copy_(self._staged[which][name][: len(index)])
                self._taken[which].record(computing)
                # submitted before the step: the next batch is read and copied while this one is trained on
                if number + 1 < len(batches):
                    coming = reader.submit(self._send, batches[number + 1], (number + 1) % 2)
                yield parts

    def _send(self, index: Array, which: int) -> None:
        """Copy rows from the map into pinned memory, and start their copy to the GPU; runs in the reading thread."""
        self._arrived[which].synchronize()  # the copy before last no longer uses this pinned memory
        parts = {name: tensor[: len(index)] for name, tensor in self._pinned[which].items()}
        self._rows.gather(index, parts)
        with torch.cuda.stream(self._copying):
            self._copying.wait_event(self._taken[which])
            for name, tensor in parts.items():
                self._staged[which][name][: len(index)].copy_(tensor, non_blocking=True)
            self._arrived[which].record(self._copying)
