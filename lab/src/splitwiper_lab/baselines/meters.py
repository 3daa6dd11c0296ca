"""What a party spends: seconds, operations, bytes, round trips, storage. The same meter for every system."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import torch
from torch.utils.flop_counter import FlopCounterMode

BANDWIDTH = 100e6
"""Bits per second of a client's connection, as in the paper (Section 5.1)."""


@dataclass(frozen=True)
class Cost:
    """The costs of a party.

    Attributes:
        seconds: computing time.
        flops: floating-point operations.
        bytes_up: bytes from client to server.
        bytes_down: bytes from server to client.
        round_trips: how often a client waited for the server's answer.
        storage: bytes kept for later, weights included.
        handling: seconds of everything else: reading, writing and hashing files; 0 for systems without files.
    """

    seconds: float = 0.0
    flops: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    round_trips: int = 0
    storage: int = 0
    handling: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, cost.name) + getattr(other, cost.name) for cost in fields(Cost)))

    @property
    def traffic(self) -> int:
        """Bytes in both directions."""
        return self.bytes_up + self.bytes_down

    def transmission(self, bandwidth: float = BANDWIDTH) -> float:
        """Return the seconds that all bytes take at ``bandwidth`` bits per second, up and down one after the other.

        >>> Cost(bytes_up=12_500_000).transmission()
        1.0
        """
        return 8 * self.traffic / bandwidth


class Meter:
    """Adds up the costs of one party. Operations are counted in the first batch of each kind and scaled by rows."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seconds = 0.0
        self._flops = 0.0
        self._per_row: dict[str, float] = {}
        self._running: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self.up = self.down = self.round_trips = 0

    @contextmanager
    def work(self, kind: str, rows: int) -> Iterator[None]:
        """Time a piece of work on ``rows`` rows, and count its operations."""
        # counting operations slows computing down, so it is done once: the same work takes the same operations per row
        if kind in self._per_row:
            with self._timed():
                yield
        else:
            with FlopCounterMode(display=False) as counter, self._timed():
                yield
            self._per_row[kind] = counter.get_total_flops() / max(rows, 1)
        self._flops += self._per_row[kind] * rows

    @contextmanager
    def _timed(self) -> Iterator[None]:
        if self._device.type != "cuda":
            start = time.perf_counter()
            try:
                yield
            finally:
                self._seconds += time.perf_counter() - start
            return
        # the GPU's own clock: no synchronisation, and work queued earlier by others is not counted
        start_event, end_event = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start_event.record()
        yield
        end_event.record()
        self._running.append((start_event, end_event))

    def settle(self) -> None:
        """Read the GPU timers; all work in progress must have finished."""
        milliseconds = 0.0
        for start, end in self._running:
            milliseconds += start.elapsed_time(end)
        self._seconds += milliseconds / 1000
        self._running.clear()

    def cost(self, *, storage: int = 0) -> Cost:
        """Return all costs so far."""
        if self._running:
            torch.cuda.synchronize(self._device)
            self.settle()
        return Cost(self._seconds, round(self._flops), self.up, self.down, self.round_trips, storage)
