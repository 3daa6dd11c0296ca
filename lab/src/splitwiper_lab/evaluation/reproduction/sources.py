"""The data that cells are measured on: a part of a published set gives other figures than the whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from splitwiper.errors import InputError
from splitwiper.formats import count
from splitwiper_lab.datasets.sources import PUBLISHED, inspect
from splitwiper_lab.evaluation.reproduction.experiment import Condition, Experiment
from splitwiper_lab.sweeps import Cell, CellResult

Rows = dict[str, list[int]]
"""Numbers of training and test rows, by data set."""


def rows_here(experiment: Experiment, wanted: Iterable[Cell], folder: Path | None) -> Rows:
    """Count the rows of the published sets that some cells need. Sets that are missing or damaged are left out."""
    names = {cell.condition for cell in wanted}
    sets: set[str] = set()
    for condition in experiment.conditions:
        if condition.name in names:
            sets.update(_sets(condition))
    found = [inspect(name, folder=folder) for name in sorted(sets)]
    return {one.name: [one.train, one.test] for one in found if one.problem is None}


def rows_of(experiment: Experiment, cell: Cell, here: Mapping[str, list[int]]) -> Rows:
    """Select the counts of the sets that one cell is measured on."""
    (condition,) = (c for c in experiment.conditions if c.name == cell.condition)
    return {name: here[name] for name in _sets(condition) if name in here}


def check_same(results: Iterable[CellResult], here: Rows, path: Path) -> None:
    """Check that a file of results was measured on the present data.

    Raises:
        InputError: some of it was measured on more or fewer rows.
    """
    for result in results:
        for name, rows in result.made.get("data", {}).items():
            if name in here and rows != here[name]:
                raise InputError(
                    f"{path} was measured on {_rows(rows)} of {name}, and {_rows(here[name])} are here: name the data "
                    "that it was measured on with --data, or another folder for results with --out."
                )


def parts(made: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say which sets were measured only in part."""
    found = set()
    for one in made:
        for name, (train, test) in one.get("data", {}).items():
            found.add((name, train, test))
    out = []
    for name, train, _ in sorted(found):
        if name in PUBLISHED and train < PUBLISHED[name].rows[0]:
            out.append(f"{count(train)} of {count(PUBLISHED[name].rows[0])} training rows of {name}")
    return out


def _rows(rows: list[int]) -> str:
    return f"{count(rows[0])} training and {count(rows[1])} test rows"


def _sets(condition: Condition) -> list[str]:
    return [name for name in str(condition.work.get("source", "")).split("+") if name in PUBLISHED]
