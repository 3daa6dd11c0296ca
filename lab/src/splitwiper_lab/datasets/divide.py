"""Divide one or several known data sets over clients, for experiments and ``splitwiper data plot``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np

from splitwiper.errors import DataError
from splitwiper.seeding import Stream
from splitwiper.wire.columns import Array
from splitwiper_lab.datasets.mnist import as_rgb32
from splitwiper_lab.datasets.partition import Mixed, mixed, one_of, rounded
from splitwiper_lab.datasets.published import DataSet, Part
from splitwiper_lab.datasets.sources import known, load

MOST_CLIENTS = 100_000
CLIENTS = ("north", "south", "east", "west", "centre")
FORGET: dict[str, str | int] = {
    "cifar10": "bird",
    "cifar100": "aquarium_fish",
    "mnist": 3,
    "ag_news": "Sports",
    "digits": "three",
    "wine": "class_1",
    "breast_cancer": "malignant",
    "iris": "versicolor",
    "descriptions": "wine",
}
"""The default label to forget, by data set."""


@dataclass(frozen=True)
class Divided:
    """Training and test rows by client, and what to forget."""

    train: dict[str, Part] = field(repr=False)
    test: dict[str, Part] = field(repr=False)
    tasks: dict[str, str]
    """The data set of each client's rows; empty if there is only one set."""
    forget: str | int
    """The label to forget."""
    owner: str
    """A client that holds the label; the only one, unless it is shared."""
    sources: tuple[str, ...]
    labels: dict[str, tuple[str | int, ...]]
    """The labels of each set, in their published order."""

    @property
    def forget_source(self) -> str:
        """The data set of the label to forget."""
        return self.tasks[self.owner] or self.sources[0]

    def counts(self, part: str = "train") -> dict[str, dict[str | int, int]]:
        """Count rows per client and label, in the part ``train`` or ``test``."""
        counts: dict[str, dict[str | int, int]] = {}
        for client, (_, labels) in (self.train if part == "train" else self.test).items():
            held = Counter(labels.tolist())
            order = self.labels[self.tasks[client] or self.sources[0]]
            counts[client] = {label: held[label] for label in order if held[label]}  # in the set's order, not by size
        return counts


def client_names(number: int) -> tuple[str, ...]:
    """Return ``number`` client names.

    >>> client_names(6)
    ('north', 'south', 'east', 'west', 'centre', 'client-6')

    Raises:
        DataError: the number is too large.
    """
    if number > MOST_CLIENTS:
        raise DataError(f"{number:,} clients are too many; give at most {MOST_CLIENTS:,}.")
    names = list(CLIENTS[: max(number, 0)])
    for n in range(len(CLIENTS) + 1, number + 1):
        names.append(f"client-{n}")
    return tuple(names)


def divided(
    source: str,
    *,
    partition: str = "overlapping",
    clients: int | Sequence[str] = 5,
    forget: str | int | None = None,
    owner: str | None = None,
    share: bool = False,
    seed: int = 0,
    folder: str | Path | None = None,
    rows: int | None = None,
) -> Divided:
    """Load a data set and divide it over clients.

    Args:
        source: a name, or several joined by ``+``, such as ``cifar10+mnist``: each set then has its own clients,
            earlier sets as many as later ones or one more (three and two of five), and its name is their task. MNIST's
            pictures are converted to the shape of CIFAR's when they are mixed.
        partition: ``homogeneous``, ``overlapping``, ``disjoint`` or ``equal``.
        clients: the number of clients, or their names.
        forget: the label to forget; by default the one in `FORGET`.
        owner: the client that holds that label; by default the first one.
        share: divide that label like any other.
        seed: the root seed.
        folder: the data folder.
        rows: use only this many training rows, all labels in proportion, and the same share of the test rows.

    Raises:
        NotFoundError: a set is unknown or missing.
        DataError: a set is damaged, or cannot be divided like that.
    """
    names = _names(source)
    own = _clients(names, clients)
    sets = {name: load(name, folder=folder) for name in names}
    target, label = _label(sets, forget, own, owner)
    if rows is not None:
        sets = subset(sets, rows=rows, seed=seed)
    parts = {name: (data.train[1], data.test[1]) for name, data in sets.items()}
    shares = mixed(parts, clients=own, kind=partition, forget=(target, label), owner=owner, seed=seed, share=share)
    return _assemble(_alike(sets), shares, label, _holder(shares, sets[target], own[target], label, owner))


def subset(sets: Mapping[str, DataSet], *, rows: int, seed: int) -> dict[str, DataSet]:
    """Return subsets with ``rows`` training rows in total, and the same share of the test rows.

    Raises:
        DataError: ``rows`` is larger than the number of rows, or smaller than the number of labels.
    """
    there = np.array([len(data.train[1]) for data in sets.values()])
    labels = sum(len(data.labels) for data in sets.values())
    if not labels <= rows <= there.sum():
        raise DataError(
            f"a subset of {rows:,} rows cannot be taken from {' and '.join(sets)}: ask for {labels:,} (one for each "
            f"label) to {there.sum():,}."
        )
    subsets = {}
    for (name, data), want in zip(sets.items(), _in_proportion(there, rows).tolist(), strict=True):
        tests = round(len(data.test[1]) * want / len(data.train[1]))
        train = _some(data.train, want, seed=seed, purpose=f"subset/train/{name}")
        test = _some(data.test, tests, seed=seed, purpose=f"subset/test/{name}")
        subsets[name] = replace(data, train=train, test=test)
    return subsets


def _some(part: Part, rows: int, *, seed: int, purpose: str) -> Part:
    """Choose ``rows`` rows, or more if needed to have at least one of each label."""
    labels = part[1]
    names, there = np.unique(labels, return_counts=True)
    chosen = []
    for name, want in zip(names.tolist(), _in_proportion(there, max(rows, len(names))), strict=True):
        where = np.flatnonzero(labels == name)
        # a stream for each label: rows of one label are the same whatever other labels there are
        chosen.append(where[Stream(seed, purpose, str(name)).permutation(len(where))[:want]])
    return _take(part, np.sort(np.concatenate(chosen)))


def _in_proportion(there: Array, rows: int) -> Array:
    """Divide ``rows`` over groups in proportion to their sizes, at least one from each."""
    return rounded(there * (rows / there.sum()), rows, least=1)


def _take(part: Part, rows: Array) -> Part:
    inputs, labels = part
    return ([inputs[row] for row in rows] if isinstance(inputs, list) else inputs[rows]), labels[rows]


def _assemble(sets: dict[str, DataSet], found: Mixed, label: str | int, owner: str) -> Divided:
    train, test = {}, {}
    for client, task in found.tasks.items():
        train[client] = _take(sets[task].train, found.rows[0][client])
        test[client] = _take(sets[task].test, found.rows[1][client])
    tasks = found.tasks if len(sets) > 1 else dict.fromkeys(found.tasks, "")
    labels = {name: data.labels for name, data in sets.items()}
    return Divided(train, test, tasks, forget=label, owner=owner, sources=tuple(sets), labels=labels)


def _names(source: str) -> tuple[str, ...]:
    names = tuple(known(name.strip()) for name in source.split("+"))
    if len(set(names)) < len(names):
        raise DataError(f"{source!r} names a data set twice; name each once.")
    return names


def _clients(sets: tuple[str, ...], clients: int | Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Assign clients to sets evenly; if that is impossible, the first sets get one more."""
    names = client_names(clients) if isinstance(clients, int) else tuple(clients)
    if len(names) < len(sets):
        raise DataError(f"too few clients ({len(names)}) for {' and '.join(sets)}; give each data set at least one.")
    each, more = divmod(len(names), len(sets))
    found = {}
    for place, name in enumerate(sets):
        first = place * each + min(place, more)
        found[name] = names[first : first + each + (place < more)]
    return found


def _label(
    sets: dict[str, DataSet], forget: str | int | None, clients: dict[str, tuple[str, ...]], owner: str | None
) -> tuple[str, str | int]:
    """Return the label to forget and its set, which is the owner's set if an owner is given."""
    if owner is not None:
        one_of(chain.from_iterable(clients.values()), owner, "client")
    candidates = [name for name in sets if owner is None or owner in clients[name]]
    if forget is None:
        return candidates[0], FORGET[candidates[0]]
    source_of: dict[str | int, str] = {}
    for name in candidates:
        for label in sets[name].labels:
            source_of.setdefault(label, name)  # a label of several sets is forgotten in the first of them
    wanted = one_of(source_of, forget, "label", f" in {' and '.join(candidates)}")
    return source_of[wanted], wanted


def _holder(found: Mixed, data: DataSet, clients: tuple[str, ...], label: str | int, owner: str | None) -> str:
    """Return the owner, or the first holder of a shared label."""
    holding = [client for client in clients if (data.train[1][found.rows[0][client]] == label).any()]
    if not holding:
        raise DataError(
            f"no training row of {data.name} is labelled {label!r}, so nobody could forget it: name another label to "
            "forget, or fetch the whole set."
        )
    if owner is not None and owner not in holding:
        they = "does" if len(holding) == 1 else "do"
        raise DataError(
            f"client {owner!r} holds no {label!r}: {', '.join(holding)} {they}. Name one of them as the owner, or "
            "take another seed."
        )
    return owner or holding[0]


def _alike(sets: dict[str, DataSet]) -> dict[str, DataSet]:
    """Return the sets, with MNIST in the shape of CIFAR if both are present, so that one network can process both."""
    if "mnist" not in sets or not {"cifar10", "cifar100"} & set(sets):
        return sets
    grey = sets["mnist"]
    (train, train_labels), (test, test_labels) = grey.train, grey.test
    colour = replace(grey, train=(as_rgb32(train), train_labels), test=(as_rgb32(test), test_labels))
    return {**sets, "mnist": colour}
