"""Who holds which label in each kind of partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from splitwiper.errors import DataError
from splitwiper.seeding import Stream

MOST = 3
"""A label of an overlapping partition lies with at most so many clients."""
VOLUMES = (0.4, 1.6)
"""Between these the volumes of clients are drawn in a homogeneous partition."""


@dataclass(frozen=True)
class Share:
    """The clients, by number, that hold a label, and their parts of it: equal ones unless weights are given."""

    clients: tuple[int, ...]
    weights: tuple[float, ...] | None = None


Holders = dict[Any, Share]
"""Shares by label."""


def homogeneous_holders(labels: Sequence[Any], clients: int, *, exclusive: Any, owner: int, seed: int) -> Holders:
    """Everybody holds every label, the volumes differ."""
    drawn = _draw(seed, "partition/volumes").uniform(*VOLUMES, size=clients)
    everybody = Share(tuple(range(clients)), tuple((drawn / drawn.sum()).tolist()))
    return {label: Share((owner,)) if _same(label, exclusive) else everybody for label in labels}


def overlapping_holders(labels: Sequence[Any], clients: int, *, exclusive: Any, owner: int, seed: int) -> Holders:
    """Each label lies with one to three clients, and nobody is left out."""
    draw = _draw(seed, "partition")
    others = [label for label in labels if not _same(label, exclusive)]
    alone = {} if exclusive is None else {exclusive: Share((owner,))}
    order = draw.permutation(np.array(others, dtype=object)).tolist()
    found = dict(alone)
    # deal one label to each client first, so that nobody is empty, then let one or two more hold it too
    for label, firsts in _dealt(order, clients, alone=alone, owner=owner).items():
        rest = [c for c in range(clients) if c not in firsts]
        few = clients > len(others)  # then each label lies with as many as may be, or clients would hold one label only
        more = MOST - len(firsts) if few else int(draw.integers(0, min(MOST, clients)))
        found[label] = Share((*firsts, *draw.permutation(rest)[:more].astype(int).tolist()))
    return {label: found[label] for label in labels}


def disjoint_holders(labels: Sequence[Any], clients: int, *, exclusive: Any, owner: int, seed: int) -> Holders:
    """Each label lies with one client; everybody holds as many labels, give or take one."""
    if clients > len(labels):
        raise DataError(
            f"{clients} clients are too many for {len(labels)} labels when each label lies with one client; use fewer "
            "clients or another partition."
        )
    others = np.array([label for label in labels if not _same(label, exclusive)], dtype=object)
    order = [owner, *(c for c in range(clients) if c != owner)]
    first = 0 if exclusive is None else 1  # the owner's turn is over: it has the exclusive label
    found: Holders = {} if exclusive is None else {exclusive: Share((owner,))}
    for place, label in enumerate(_draw(seed, "partition").permutation(others).tolist()):
        found[label] = Share((order[(first + place) % clients],))
    return {label: found[label] for label in labels}


def _dealt(others: list[Any], clients: int, *, alone: Holders, owner: int) -> dict[Any, list[int]]:
    """The first holders of every label: each client gets at least one label, and no label more than three clients."""
    if clients <= len(others):
        return {label: [place % clients] for place, label in enumerate(others)}
    waiting = list(range(clients))
    if alone and clients > MOST * len(others):
        waiting.remove(owner)  # it has a label already
    if len(waiting) > MOST * len(others):
        raise DataError(
            f"{clients} clients are too many for {len(others) + len(alone)} labels when each label lies with at most "
            f"{MOST} clients{' and one with its owner alone' if alone else ''}: some would hold nothing. Use fewer "
            "clients or a homogeneous partition."
        )
    return {label: waiting[place :: len(others)] for place, label in enumerate(others)}


def _draw(seed: int, purpose: str) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=Stream(seed, purpose).number))


def _same(label: Any, exclusive: Any) -> bool:
    return exclusive is not None and bool(label == exclusive)
