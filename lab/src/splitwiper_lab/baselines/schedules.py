"""Which clients take part in which batch: one client after another, or interleaved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from splitwiper.wire.columns import Array

SCHEDULES = ("interleaved", "turns")
Batch = dict[str, Array]
"""The rows of each client that takes part in a batch."""


@dataclass(frozen=True)
class Portion:
    """The rows of one client that a training uses: those that stay, and those to forget."""

    kept: Array
    gone: Array

    def __len__(self) -> int:
        return len(self.kept) + len(self.gone)


def interleaved(portions: Mapping[str, Portion], batch: int) -> list[Batch]:
    """Divide every client's rows evenly among all batches; a client with few rows takes part in the first ones only.

    >>> few = Portion(np.arange(2), np.arange(0))
    >>> [{name: rows.tolist() for name, rows in b.items()} for b in interleaved({"a": few, "b": few}, 2)]
    [{'a': [0], 'b': [0]}, {'a': [1], 'b': [1]}]
    """
    # as many batches as for all rows in one place, so that both schedules take steps of the same size
    count = math.ceil(sum(map(len, portions.values())) / batch)
    batches: list[Batch] = [{} for _ in range(count)]
    for name, portion in portions.items():
        for place, rows in enumerate(_parts(portion, count)):
            if len(rows):
                batches[place][name] = rows
    return batches


def in_turn(portions: Mapping[str, Portion], batch: int, order: Sequence[str]) -> list[Batch]:
    """Make all batches of the first client, then all of the next."""
    batches = []
    for name in order:
        for part in _parts(portions[name], math.ceil(len(portions[name]) / batch)):
            if len(part):
                batches.append({name: part})
    return batches


def _parts(portion: Portion, count: int) -> list[Array]:
    """Split rows into parts of equal size, up to a row; rows that stay and rows to forget are spread over all parts."""
    pairs = zip(np.array_split(portion.kept, count), np.array_split(portion.gone, count), strict=True)
    return list(map(np.concatenate, pairs))
