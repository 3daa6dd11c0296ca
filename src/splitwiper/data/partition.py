"""Deterministic partitions of data sets over clients: homogeneous, overlapping, disjoint, and of several tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from splitwiper.data.holders import Holders, disjoint_holders, homogeneous_holders, overlapping_holders
from splitwiper.errors import DataError, nearest
from splitwiper.seeding import Stream

Array = np.ndarray[Any, np.dtype[Any]]
Labels = Array | Sequence[Any]
Rows = tuple[dict[str, Array], ...]
"""For each part, the row numbers of every client."""
KINDS = {
    "homogeneous": homogeneous_holders,
    "overlapping": overlapping_holders,
    "disjoint": disjoint_holders,
}


def partition(
    kind: str,
    *parts: Labels,
    clients: Sequence[str],
    exclusive: Any = None,
    owner: str | None = None,
    seed: int,
    share: bool = False,
) -> Rows:
    """Divide rows over clients (Section 5.1 of the paper).

    ``homogeneous``: every client holds every label, in volumes that differ by up to four times. ``overlapping``: each
    label lies with one to three clients. ``disjoint``: each label lies with one client. In all of them the exclusive
    label lies with its owner alone.

    Args:
        kind: one of `KINDS`.
        parts: label sequences, say of the training and of the test set; all are divided the same way.
        clients: client names.
        exclusive: the label only ``owner`` holds; None for no such label.
        owner: its owner; the first client unless given.
        seed: the root seed.
        share: divide the exclusive label like any other.

    Raises:
        DataError: the partition cannot be made, or would leave a client without rows in one of the parts.
    """
    if kind not in KINDS:
        hint = nearest(kind, KINDS) or f" Known are {', '.join(KINDS)}."
        raise DataError(f"there is no partition {kind!r}.{hint}")
    names = _checked(clients)
    labels = sorted({label for part in parts for label in np.asarray(part).tolist()}, key=str)
    own = names[0] if owner is None else owner
    if own not in names:
        raise DataError(f"client {own!r} is not there.{nearest(own, names) or ' Clients: ' + ', '.join(names) + '.'}")
    if exclusive is not None and exclusive not in labels:
        close = nearest(str(exclusive), map(str, labels))
        raise DataError(f"label {exclusive!r} is not there.{close or ' Labels: ' + ', '.join(map(str, labels)) + '.'}")
    alone = None if share else exclusive
    holders = KINDS[kind](labels, len(names), exclusive=alone, owner=names.index(own), seed=seed)
    divided = tuple(_divide(part, number, holders, names, seed=seed) for number, part in enumerate(parts))
    _nobody_empty(divided, names)
    return divided


def overlapping(
    *parts: Labels, clients: Sequence[str], exclusive: Any, owner: str, seed: int, share: bool = False
) -> Rows:
    """Partially overlapping labels: each label lies with one to three clients, one with its owner alone.

    See `partition`.
    """
    return partition("overlapping", *parts, clients=clients, exclusive=exclusive, owner=owner, seed=seed, share=share)


@dataclass(frozen=True)
class Mixed:
    """Several data sets, each divided over clients of its own."""

    rows: Rows
    """For each part, the row numbers of every client in its own set."""
    tasks: dict[str, str]
    """The set each client's rows are from."""


def mixed(
    sets: Mapping[str, Sequence[Labels]],
    *,
    clients: Mapping[str, Sequence[str]],
    kind: str = "overlapping",
    exclusive: tuple[str, Any] | None = None,
    owner: str | None = None,
    seed: int,
    share: bool = False,
) -> Mixed:
    """Different tasks (Section 5.1): each data set is divided over its own clients.

    Args:
        sets: by name, the label sequences of its parts; as many parts in each.
        clients: by name of the set, the names of its clients.
        kind: how each is divided, see `partition`.
        exclusive: a set's name and its label that only ``owner`` holds.
        owner: its owner; the first client of that set unless given.
        seed: the root seed.
        share: divide the exclusive label like any other.

    Raises:
        DataError: a partition cannot be made, or a client has two tasks.
    """
    tasks = {client: name for name in sets for client in clients[name]}
    if len(tasks) != sum(len(clients[name]) for name in sets):
        raise DataError("a client is listed for two data sets; give each set clients of its own.")
    alone: dict[str, Any] = dict([exclusive]) if exclusive else {}
    rows: list[dict[str, Array]] = [{} for _ in next(iter(sets.values()))]
    for name, parts in sets.items():
        found = partition(
            kind,
            *parts,
            clients=clients[name],
            exclusive=alone.get(name),
            owner=owner if name in alone else None,
            seed=seed,
            share=share,
        )
        for whole, part in zip(rows, found, strict=True):
            whole.update(part)
    return Mixed(tuple(rows), tasks)


def _checked(clients: Sequence[str]) -> list[str]:
    names = list(clients)
    if not names:
        raise DataError("there are no clients; name at least one.")
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise DataError(f"two clients are called {twice[0]!r}; give each its own name.")
    return names


def _divide(part: Labels, number: int, holders: Holders, clients: list[str], *, seed: int) -> dict[str, Array]:
    """The row numbers of every client in one part."""
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
    """Whole numbers in proportion to the weights, at least one each, that sum up to ``rows``."""
    if rows < len(weights):
        raise DataError(
            f"label {label!r} has {rows} rows in part {number + 1}, fewer than the {len(weights)} clients that are "
            "each to hold some; use fewer clients, more rows, or another partition."
        )
    exact = np.array(weights) * (rows - len(weights))
    amounts: Array = np.floor(exact).astype(np.int64)
    rest = rows - len(weights) - int(amounts.sum())
    amounts[np.argsort(amounts - exact, kind="stable")[:rest]] += 1  # largest remainders first
    return np.asarray(amounts + 1)


def _nobody_empty(divided: Rows, clients: list[str]) -> None:
    for number, part in enumerate(divided):
        empty = [name for name in clients if not len(part[name])]
        if empty:
            raise DataError(
                f"client {empty[0]!r} would hold no row of part {number + 1} of {len(divided)}; use fewer clients, "
                "more rows, or another seed."
            )
