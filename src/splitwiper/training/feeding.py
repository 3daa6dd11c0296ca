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
    """Return the fastest feed that fits."""
    decode = rows.decoder(device, dtype)
    if device.type != "cuda":
        return AheadFeed(rows, decode, ahead=rows.width * largest >= _AHEAD)
    if resident:
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch has it, unused
        free = torch.cuda.mem_get_info(device)[0] + reserved
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


def _first_rows(parts: Parts, rows: int) -> Parts:
    """Return views of the first rows of each tensor: the last batches of an epoch may be smaller than the buffers."""
    return {name: tensor[:rows] for name, tensor in parts.items()}


class AheadFeed:
    """Batches in CPU memory. During training on one, the pages of the next are read from disk if necessary.

    The copy itself waits for its turn and is made by all threads: a thread that copies in parallel with the computation
    would only make both wait for each other.
    """

    def __init__(self, rows: Cache, decode: Decode, *, ahead: bool) -> None:
        self._rows, self.decode, self._ahead = rows, decode, ahead

    def epoch(self, batches: Sequence[Array]) -> Iterator[Parts]:
        """Yield the batches in turn, each in memory of its own: a net may keep one, to look at it again later."""
        if not self._ahead:
            yield from map(self._rows.gather, batches)
            return
        with own_pool(1) as reader:
            for number, index in enumerate(batches, start=1):
                parts = self._rows.gather(index)
                if number < len(batches):
                    reader.submit(self._rows.touch, batches[number])
                yield parts


class ResidentFeed:
    """The whole cache in GPU memory, as stored; a batch is gathered there, into tensors that never move."""

    def __init__(self, rows: Cache, decode: Decode, device: torch.device, largest: int) -> None:
        self.decode = decode
        self._all: Parts = {}
        self._batch: Parts = {}
        for start, parts in _uploaded(rows, device):
            for name, tensor in self._kept(parts).items():
                if name not in self._all:
                    self._all[name] = tensor.new_empty((len(rows), *tensor.shape[1:]))
                    self._batch[name] = tensor.new_empty((largest, *tensor.shape[1:]))
                self._all[name][start : start + len(tensor)] = tensor
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
            parts = _first_rows(self._batch, size)
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
        parts = rows.gather(np.arange(1))
        decoded = rows.decoder(torch.device("cpu"), dtype)(parts)
        return (parts[CODE].nbytes + sum(tensor.nbytes for tensor in decoded.values())) * len(rows)

    def _kept(self, parts: Parts) -> Parts:
        out = self._decode_once(parts)
        for name, tensor in out.items():
            if tensor.ndim == 4:  # rows × channels × height × width
                self._maps.add(name)
                out[name] = tensor.permute(0, 2, 3, 1).contiguous()
        return {**out, CODE: parts[CODE]}

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
        return rows.gather(np.arange(start, min(start + step, len(rows))))

    with own_pool(_READERS) as readers:
        waiting = deque[Future[Parts]]()
        for number, start in enumerate(starts):
            # not `readers.map`, which would read the whole cache into memory faster than the GPU takes it
            while len(waiting) < _READERS and number + len(waiting) < len(starts):
                waiting.append(readers.submit(read, starts[number + len(waiting)]))
            # not `to_device`, which does not wait for the copy: this memory is given back at once
            yield start, {name: tensor.to(device) for name, tensor in waiting.popleft().result().items()}


class _Slot:
    """The places of one batch on its way: in pinned memory, and staged on the GPU; and how far it has come."""

    def __init__(self, rows: Cache, device: torch.device, largest: int) -> None:
        self.pinned = rows.buffers(largest, pinned=True)
        self.staged = rows.buffers(largest, device)
        self.arrived = torch.cuda.Event()  # the staged batch is complete
        self.taken = torch.cuda.Event()  # the step has its copy, so the staged memory may be overwritten


class StreamedFeed:
    """Batches read ahead into pinned memory and copied to the GPU while it computes on the previous one."""

    def __init__(self, rows: Cache, decode: Decode, device: torch.device, largest: int) -> None:
        self._rows, self.decode = rows, decode
        self._batch = rows.buffers(largest, device)  # what the step reads; a graph needs it at one address
        self._slots = (_Slot(rows, device, largest), _Slot(rows, device, largest))
        self._copying = torch.cuda.Stream(device)

    def epoch(self, batches: Sequence[Array]) -> Iterator[Parts]:
        """Yield the batches in turn."""
        # Batches alternate between two slots, so that one is filled while the other is used: the reading thread fills
        # pinned memory, and the copying stream what is staged on the GPU.
        computing = torch.cuda.current_stream()
        self._copying.wait_stream(computing)  # which allocated the buffers
        with own_pool(1) as reader:
            coming = reader.submit(self._send, batches[0], self._slots[0])
            for number, index in enumerate(batches):
                coming.result()
                slot = self._slots[number % 2]
                computing.wait_event(slot.arrived)
                parts = _first_rows(self._batch, len(index))
                for name, tensor in parts.items():
                    tensor.copy_(slot.staged[name][: len(index)])
                slot.taken.record(computing)
                # submitted before the step: the next batch is read and copied while this one is trained on
                if number + 1 < len(batches):
                    coming = reader.submit(self._send, batches[number + 1], self._slots[(number + 1) % 2])
                yield parts

    def _send(self, index: Array, slot: _Slot) -> None:
        """Copy rows from the map into pinned memory, and start their copy to the GPU; runs in the reading thread."""
        slot.arrived.synchronize()  # the copy before last no longer uses this pinned memory
        parts = self._rows.gather(index, _first_rows(slot.pinned, len(index)))
        with torch.cuda.stream(self._copying):
            self._copying.wait_event(slot.taken)
            for name, tensor in parts.items():
                slot.staged[name][: len(index)].copy_(tensor, non_blocking=True)
            slot.arrived.record(self._copying)
