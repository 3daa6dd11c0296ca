"""Deterministic partitions of data sets over clients: homogeneous, overlapping, disjoint, and of several tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
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


def _homogeneous(labels: Sequence[Any], clients: int, *, owner: int, alone: bool, seed: int) -> Holders:
    """Let every client hold every label, in different volumes."""
    drawn = _draw(seed, "partition/volumes").uniform(*VOLUMES, size=clients)
    return dict.fromkeys(labels, Share(tuple(range(clients)), tuple((drawn / drawn.sum()).tolist())))


def _equal(labels: Sequence[Any], clients: int, *, owner: int, alone: bool, seed: int) -> Holders:
    """Let every client hold an equal share of every label."""
    return dict.fromkeys(labels, Share(tuple(range(clients))))


def _overlapping(labels: Sequence[Any], clients: int, *, owner: int, alone: bool, seed: int) -> Holders:
    """Let one to three clients hold each label, and every client at least one label."""
    draw = _draw(seed, "partition")
    order = draw.permutation(np.array(labels, dtype=object)).tolist()
    few = clients > len(labels)  # as many holders as allowed: clients get more than one label
    holders: Holders = {}
    # deal one label to each client first, so that no client is empty, then add up to two more holders
    for label, firsts in _dealt(order, clients, owner=owner, alone=alone).items():
        rest = sorted(set(range(clients)).difference(firsts))
        more = MOST - len(firsts) if few else int(draw.integers(0, min(MOST, clients)))
        holders[label] = Share((*firsts, *draw.permutation(rest)[:more].astype(int).tolist()))
    return holders


def _dealt(labels: list[Any], clients: int, *, owner: int, alone: bool) -> dict[Any, list[int]]:
    """Return the first holders of each label: each client gets at least one label, no label more than three clients."""
    waiting, most = list(range(clients)), MOST * len(labels)
    if clients > len(labels):
        if alone and clients > most:
            waiting.remove(owner)  # it already has a label
        if len(waiting) > most:
            raise DataError(
                f"{clients} clients are too many for {len(labels) + alone} labels when each label is held by at most "
                f"{MOST} clients{' and one with its owner alone' if alone else ''}: some would hold nothing. Use fewer "
                "clients or a homogeneous partition."
            )
    # clients go round the labels if there are more clients than labels, and labels round the clients otherwise
    firsts: dict[Any, list[int]] = {}
    for turn in range(max(len(labels), len(waiting))):
        firsts.setdefault(labels[turn % len(labels)], []).append(waiting[turn % len(waiting)])
    return firsts


def _disjoint(labels: Sequence[Any], clients: int, *, owner: int, alone: bool, seed: int) -> Holders:
    """Let one client hold each label; numbers of labels differ by at most one between clients."""
    if clients > len(labels) + alone:
        raise DataError(
            f"{clients} clients are too many for {len(labels) + alone} labels when each label is held by one client; "
            "use fewer clients or another partition."
        )
    order = sorted(range(clients), key=lambda client: client != owner)  # the owner first
    holders: Holders = {}
    # if the owner alone holds the label to forget, it has had its turn
    for turn, label in enumerate(_draw(seed, "partition").permutation(np.array(labels, dtype=object)), start=alone):
        holders[label] = Share((order[turn % clients],))
    return holders


def _draw(seed: int, purpose: str) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=Stream(seed, purpose).number))


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
    deal = KINDS[one_of(KINDS, kind, "partition")]
    names = _checked(clients)
    every: set[Any] = set()
    for part in parts:
        every.update(np.asarray(part).tolist())
    labels = sorted(every, key=str)
    place = 0 if owner is None else names.index(one_of(names, owner, "client"))
    label = None if forget is None else one_of(labels, forget, "label")
    alone = label is not None and not share
    if alone:
        labels.remove(label)
    holders = deal(labels, len(names), owner=place, alone=alone, seed=seed)
    if alone:
        holders[label] = Share((place,))
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

    Arguments are those of `partition`, with label sequences and clients by name of the set; ``forget`` is the name of a
    set, and its label that only ``owner`` holds. All sets have the same number of parts.

    Raises:
        DataError: a partition is impossible, or two clients have the same name.
    """
    _checked(list(chain.from_iterable(map(clients.__getitem__, sets))))
    target, label = forget or (None, None)
    tasks: dict[str, str] = {}
    rows: dict[int, dict[str, Array]] = {}
    for name, parts in sets.items():
        tasks |= dict.fromkeys(clients[name], name)
        mine = {"forget": label, "owner": owner} if name == target else {}
        divided = partition(kind, *parts, clients=clients[name], seed=seed, share=share, **mine)
        for number, part in enumerate(divided):
            rows.setdefault(number, {}).update(part)
    return Mixed(tuple(rows.values()), tasks)


def one_of(known: Iterable[Any], value: Any, what: str, where: str = "") -> Any:
    """Return the known value with the same text as ``value``: on a command line, the digit 3 is a text.

    Raises:
        DataError: there is none; the message names the nearest.
    """
    by_text: dict[str, Any] = {}
    for candidate in known:
        by_text.setdefault(str(candidate), candidate)
    if str(value) in by_text:
        return by_text[str(value)]
    names = list(by_text)
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
    if len(set(names)) < len(names):
        name, _ = Counter(names).most_common(1)[0]
        raise DataError(f"two clients are called {name!r}; give each its own name.")
    return names


def _divide(part: Labels, number: int, holders: Holders, clients: list[str], *, seed: int) -> dict[str, Array]:
    """Return the row numbers of every client in one part."""
    values = np.asarray(part)
    mine: dict[str, list[Array]] = {name: [] for name in clients}
    for label, held in holders.items():
        rows = np.flatnonzero(values == label)
        # a stream for each label, so that rows of one label lie the same however the others are divided
        rows = rows[Stream(seed, f"partition/{number}", str(label)).permutation(len(rows))]
        if held.weights is None:
            shares = np.array_split(rows, len(held.clients))
        else:
            shares = np.split(rows, np.cumsum(_amounts(len(rows), held.weights, label, number))[:-1])
        for holder, share in zip(held.clients, shares, strict=True):
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
    return 1 + rounded(np.array(weights) * spare, spare)  # one for each client first, so that none is left empty


def _nobody_empty(divided: Rows, clients: list[str]) -> None:
    for number, part in enumerate(divided):
        for name in clients:
            if not len(part[name]):
                raise DataError(
                    f"client {name!r} would hold no row of part {number + 1} of {len(divided)}; use fewer clients, "
                    "more rows, or another seed."
                )
