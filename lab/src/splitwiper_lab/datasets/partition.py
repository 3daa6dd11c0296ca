"""Deterministic partitions of data sets over clients: homogeneous, overlapping, disjoint, and of several tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from splitwiper.errors import DataError, nearest
from splitwiper.seeding import Stream
from splitwiper.wire.columns import Array

Labels = Array | Sequence[Any]
Rows = tuple[dict[str, Array], ...]
"""For each part, the row numbers of every client."""
MOST = 3
"""The most clients that hold a label in an overlapping partition."""
VOLUMES = (0.4, 1.6)
"""The range that clients' volumes are drawn from in a homogeneous partition."""


@dataclass(frozen=True)
class Share:
    """The clients, by number, that hold a label, and their shares of it: equal unless weights are given."""

    clients: tuple[int, ...]
    weights: tuple[float, ...] | None = None


Holders = dict[Any, Share]
"""Shares by label."""


def _homogeneous(labels: Sequence[Any], clients: int, *, forget: Any, owner: int, seed: int) -> Holders:
    """Let every client hold every label, in different volumes."""
    drawn = _draw(seed, "partition/volumes").uniform(*VOLUMES, size=clients)
    everybody = Share(tuple(range(clients)), tuple((drawn / drawn.sum()).tolist()))
    return {label: Share((owner,)) if _same(label, forget) else everybody for label in labels}


def _equal(labels: Sequence[Any], clients: int, *, forget: Any, owner: int, seed: int) -> Holders:
    """Let every client hold an equal share of every label."""
    return {label: Share((owner,) if _same(label, forget) else tuple(range(clients))) for label in labels}


def _overlapping(labels: Sequence[Any], clients: int, *, forget: Any, owner: int, seed: int) -> Holders:
    """Let one to three clients hold each label, and every client at least one label."""
    draw = _draw(seed, "partition")
    others = [label for label in labels if not _same(label, forget)]
    alone = {} if forget is None else {forget: Share((owner,))}
    order = draw.permutation(np.array(others, dtype=object)).tolist()
    found = dict(alone)
    # deal one label to each client first, so that no client is empty, then add up to two more holders
    for label, firsts in _dealt(order, clients, alone=alone, owner=owner).items():
        rest = [c for c in range(clients) if c not in firsts]
        few = clients > len(others)  # as many holders as allowed: clients get more than one label
        more = MOST - len(firsts) if few else int(draw.integers(0, min(MOST, clients)))
        found[label] = Share((*firsts, *draw.permutation(rest)[:more].astype(int).tolist()))
    return {label: found[label] for label in labels}


def _disjoint(labels: Sequence[Any], clients: int, *, forget: Any, owner: int, seed: int) -> Holders:
    """Let one client hold each label; numbers of labels differ by at most one between clients."""
    if clients > len(labels):
        raise DataError(
            f"{clients} clients are too many for {len(labels)} labels when each label is held by one client; use fewer "
            "clients or another partition."
        )
    others = np.array([label for label in labels if not _same(label, forget)], dtype=object)
    order = [owner, *(c for c in range(clients) if c != owner)]
    first = 0 if forget is None else 1  # the owner has had its turn: it holds the label to forget
    found: Holders = {} if forget is None else {forget: Share((owner,))}
    for place, label in enumerate(_draw(seed, "partition").permutation(others).tolist()):
        found[label] = Share((order[(first + place) % clients],))
    return {label: found[label] for label in labels}


def _dealt(others: list[Any], clients: int, *, alone: Holders, owner: int) -> dict[Any, list[int]]:
    """Return the first holders of each label: each client gets at least one label, no label more than three clients."""
    if clients <= len(others):
        return {label: [place % clients] for place, label in enumerate(others)}
    waiting = list(range(clients))
    if alone and clients > MOST * len(others):
        waiting.remove(owner)  # it already has a label
    if len(waiting) > MOST * len(others):
        raise DataError(
            f"{clients} clients are too many for {len(others) + len(alone)} labels when each label is held by at most "
            f"{MOST} clients{' and one with its owner alone' if alone else ''}: some would hold nothing. Use fewer "
            "clients or a homogeneous partition."
        )
    return {label: waiting[place :: len(others)] for place, label in enumerate(others)}


def _draw(seed: int, purpose: str) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=Stream(seed, purpose).number))


def _same(label: Any, forget: Any) -> bool:
    return forget is not None and bool(label == forget)


KINDS = {"homogeneous": _homogeneous, "overlapping": _overlapping, "disjoint": _disjoint, "equal": _equal}


def partition(
    kind: str,
    *parts: Labels,
    clients: Sequence[str],
    forget: Any = None,
    owner: str | None = None,
    seed: int,
    share: bool = False,
) -> Rows:
    """Divide rows over clients (Section 5.1 of the paper).

    ``homogeneous``: every client holds every label, in volumes that differ by up to four times. ``overlapping``: one to
    three clients hold each label. ``disjoint``: one client holds each label. ``equal``, which is not in the paper:
    every client holds an equal share of every label. In all of them, only its owner holds the label to forget.

    Args:
        kind: one of `KINDS`.
        parts: label sequences, for example of the training and of the test set; all are divided the same way.
        clients: client names.
        forget: the label that only ``owner`` holds; None for no such label.
        owner: the owner of that label; by default the first client.
        seed: the root seed.
        share: divide the label to forget like any other.

    Raises:
        DataError: the partition is impossible, or would leave a client without rows in one of the parts.
    """
    held = KINDS[one_of(KINDS, kind, "partition")]
    names = _checked(clients)
    every: set[Any] = set()
    for part in parts:
        every.update(np.asarray(part).tolist())
    labels = sorted(every, key=str)
    own = names[0] if owner is None else one_of(names, owner, "client")
    label = None if forget is None else one_of(labels, forget, "label")
    holders = held(labels, len(names), forget=None if share else label, owner=names.index(own), seed=seed)
    divided = tuple(_divide(part, number, holders, names, seed=seed) for number, part in enumerate(parts))
    _nobody_empty(divided, names)
    return divided


@dataclass(frozen=True)
class Mixed:
    """Several data sets, each divided over its own clients."""

    rows: Rows
    """For each part, the row numbers of every client in its own set."""
    tasks: dict[str, str]
    """The data set of each client's rows."""


def mixed(
    sets: Mapping[str, Sequence[Labels]],
    *,
    clients: Mapping[str, Sequence[str]],
    kind: str = "overlapping",
    forget: tuple[str, Any] | None = None,
    owner: str | None = None,
    seed: int,
    share: bool = False,
) -> Mixed:
    """Divide each of several data sets over its own clients: different tasks (Section 5.1).

    Args:
        sets: by name, the label sequences of its parts; all sets have the same number of parts.
        clients: by name of the set, the names of its clients.
        kind: the kind of partition, see `partition`.
        forget: the name of a set, and its label that only ``owner`` holds.
        owner: the owner of that label; by default the first client of that set.
        seed: the root seed.
        share: divide the label to forget like any other.

    Raises:
        DataError: a partition is impossible, or two clients have the same name.
    """
    _checked([client for name in sets for client in clients[name]])
    tasks = {client: name for name in sets for client in clients[name]}
    alone: dict[str, Any] = dict([forget]) if forget else {}
    rows: list[dict[str, Array]] = [{} for _ in next(iter(sets.values()))]
    for name, parts in sets.items():
        found = partition(
            kind,
            *parts,
            clients=clients[name],
            forget=alone.get(name),
            owner=owner if name in alone else None,
            seed=seed,
            share=share,
        )
        for whole, part in zip(rows, found, strict=True):
            whole.update(part)
    return Mixed(tuple(rows), tasks)


def one_of(known: Iterable[Any], value: Any, what: str, where: str = "") -> Any:
    """Return the known value with the same text as ``value``: on a command line, the digit 3 is a text.

    Raises:
        DataError: there is none; the message names the nearest.
    """
    everything = list(known)
    for one in everything:
        if str(one) == str(value):
            return one
    names = [str(one) for one in everything]
    hint = nearest(str(value), names) or f" Known are {', '.join(names[:12])}{'…' if names[12:] else ''}."
    raise DataError(f"there is no {what} {value!r}{where}.{hint}")


def rounded(exact: Array, total: int, *, least: int = 0) -> Array:
    """Round to whole numbers close to the exact ones, none below ``least``, with the sum ``total``.

    >>> rounded(np.array([0.2, 1.6, 3.2]), 5)
    array([0, 2, 3])
    >>> rounded(np.array([0.2, 1.6, 3.2]), 5, least=1)
    array([1, 1, 3])
    """
    found: Array = np.maximum(np.floor(exact).astype(np.int64), least)
    rest = max(0, total - int(found.sum()))
    found[np.argsort(found - exact, kind="stable")[:rest]] += 1  # largest remainders first
    while found.sum() > total:  # what lifting to the least added is taken from the largest
        found[np.argmax(found)] -= 1
    return found


def _checked(clients: Sequence[str]) -> list[str]:
    names = list(clients)
    if not names:
        raise DataError("there are no clients; name at least one.")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"two clients are called {name!r}; give each its own name.")
        seen.add(name)
    return names


def _divide(part: Labels, number: int, holders: Holders, clients: list[str], *, seed: int) -> dict[str, Array]:
    """Return the row numbers of every client in one part."""
    values = np.asarray(part)
    mine: dict[str, list[Array]] = {name: [] for name in clients}
    for label, who in holders.items():
        rows = np.flatnonzero(values == label)
        rows = rows[Stream(seed, f"partition/{number}", str(label)).permutation(len(rows))]
        if who.weights is None:
            shares = np.array_split(rows, len(who.clients))
        else:
            shares = np.split(rows, np.cumsum(_amounts(len(rows), who.weights, label, number))[:-1])
        for holder, share in zip(who.clients, shares, strict=True):
            mine[clients[holder]].append(share)
    return {name: np.sort(np.concatenate(shares)) for name, shares in mine.items()}


def _amounts(rows: int, weights: tuple[float, ...], label: Any, number: int) -> Array:
    """Return whole numbers in proportion to the weights, at least one each, with the sum ``rows``."""
    spare = rows - len(weights)
    if spare < 0:
        raise DataError(
            f"label {label!r} has {rows} rows in part {number + 1}, fewer than the {len(weights)} clients that are "
            "each to hold some; use fewer clients, more rows, or another partition."
        )
    return 1 + rounded(np.array(weights) * spare, spare)


def _nobody_empty(divided: Rows, clients: list[str]) -> None:
    for number, part in enumerate(divided):
        empty = [name for name in clients if not len(part[name])]
        if empty:
            raise DataError(
                f"client {empty[0]!r} would hold no row of part {number + 1} of {len(divided)}; use fewer clients, "
                "more rows, or another seed."
            )
