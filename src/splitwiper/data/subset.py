"""Smaller data sets for quick runs: every label in proportion, the same rows every time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from splitwiper.data.published import Array, DataSet, Part
from splitwiper.errors import DataError
from splitwiper.seeding import Stream


def subset(sets: Mapping[str, DataSet], *, rows: int, seed: int) -> dict[str, DataSet]:
    """Data sets with ``rows`` training rows in all, and as large a share of the test rows.

    Raises:
        DataError: more rows are asked for than there are, or fewer than there are labels.
    """
    there = {name: len(data.train[1]) for name, data in sets.items()}
    labels = sum(len(data.labels) for data in sets.values())
    if not labels <= rows <= sum(there.values()):
        raise DataError(
            f"a subset of {rows:,} rows cannot be taken from {' and '.join(sets)}: ask for {labels:,} (one for each "
            f"label) to {sum(there.values()):,}."
        )
    wanted = _shares(np.array(list(there.values())), rows)
    return {
        name: DataSet(
            name,
            _some(data.train, int(want), seed=seed, purpose=f"subset/train/{name}"),
            _some(
                data.test,
                round(len(data.test[1]) * int(want) / there[name]),
                seed=seed,
                purpose=f"subset/test/{name}",
            ),
            data.labels,
        )
        for (name, data), want in zip(sets.items(), wanted, strict=True)
    }


def _some(part: Part, rows: int, *, seed: int, purpose: str) -> tuple[Any, Array]:
    inputs, labels = part
    names, counts = np.unique(labels, return_counts=True)
    chosen = []
    for name, want in zip(names.tolist(), _shares(counts, max(rows, len(names))), strict=True):
        where = np.flatnonzero(labels == name)
        chosen.append(where[Stream(seed, purpose, str(name)).permutation(len(where))[:want]])
    kept = np.sort(np.concatenate(chosen))
    return ([inputs[row] for row in kept] if isinstance(inputs, list) else inputs[kept]), labels[kept]


def _shares(there: Array, rows: int) -> Array:
    """Whole numbers in proportion to what is there, at least one and at most all of each, that sum up to ``rows``."""
    exact = there * (rows / there.sum())
    found: Array = np.clip(np.floor(exact).astype(np.int64), 1, there)
    for place in np.argsort(found - exact, kind="stable"):  # largest remainders first
        if found.sum() < rows:
            found[place] += found[place] < there[place]
    while found.sum() > rows:  # the ones that were lifted to one row are paid for by the largest
        found[np.argmax(found)] -= 1
    return found
