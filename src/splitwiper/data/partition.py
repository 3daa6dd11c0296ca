"""Deterministic partitions of a data set over clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from splitwiper.errors import DataError
from splitwiper.seeding import Stream

Array = np.ndarray[Any, np.dtype[Any]]


def overlapping(
    *parts: Sequence[Any], clients: Sequence[str], exclusive: Any, owner: str, seed: int
) -> tuple[dict[str, Array], ...]:
    """Partially overlapping labels (Section 5.1): each label lies with one to three clients, one with its owner alone.

    Args:
        parts: label sequences, say of the training and of the test set; all are divided the same way.
        clients: client names.
        exclusive: the label only ``owner`` holds.
        owner: its owner.
        seed: the root seed.

    Returns:
        For each part, the row numbers of every client.
    """
    labels = sorted({label for part in parts for label in np.asarray(part).tolist()}, key=str)
    if exclusive not in labels or owner not in clients:
        raise DataError(f"label {exclusive!r} or client {owner!r} is not there.")
    if len(clients) > len(labels) - 1:
        raise DataError(f"{len(clients)} clients are too many for {len(labels)} labels: some would hold nothing.")
    draw = np.random.Generator(np.random.Philox(key=Stream(seed, "partition").number))
    others = [label for label in labels if label != exclusive]
    holders: dict[Any, list[int]] = {exclusive: [list(clients).index(owner)]}
    # deal one label to each client first, so that nobody is empty, then let one or two more hold it too
    for place, label in enumerate(draw.permutation(np.array(others, dtype=object))):
        first = place % len(clients)
        rest = [c for c in range(len(clients)) if c != first]
        more = int(draw.integers(0, min(3, len(clients))))
        holders[label] = [first, *draw.permutation(rest)[:more].tolist()]
    divided = []
    for number, part in enumerate(parts):
        values = np.asarray(part)
        mine: dict[str, list[Array]] = {name: [] for name in clients}
        for label in labels:
            rows = np.flatnonzero(values == label)
            rows = rows[Stream(seed, f"partition/{number}", str(label)).permutation(len(rows))]
            for holder, share in zip(holders[label], np.array_split(rows, len(holders[label])), strict=True):
                mine[clients[holder]].append(share)
        divided.append({name: np.sort(np.concatenate(shares)) for name, shares in mine.items()})
    return tuple(divided)
