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
    sets = set[str]()
    for name in {cell.condition for cell in wanted}:
        sets |= _sets(experiment.condition(name))
    rows = {}
    for name in sorted(sets):
        found = inspect(name, folder=folder)
        if found.problem is None:  # measuring says what is wrong, where a cell needs it
            rows[name] = [found.train, found.test]
    return rows


def rows_of(experiment: Experiment, cell: Cell, here: Mapping[str, list[int]]) -> Rows:
    """Select the counts of the sets that one cell is measured on."""
    sets = _sets(experiment.condition(cell.condition))
    return {name: here[name] for name in here if name in sets}


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
    incomplete = set()
    for line in made:
        for name, (train, _) in line.get("data", {}).items():
            if name in PUBLISHED and train < PUBLISHED[name].rows[0]:
                incomplete.add((name, train))
    return [
        f"{count(train)} of {count(PUBLISHED[name].rows[0])} training rows of {name}"
        for name, train in sorted(incomplete)
    ]


def _rows(rows: list[int]) -> str:
    return f"{count(rows[0])} training and {count(rows[1])} test rows"


def _sets(condition: Condition) -> set[str]:
    """Return the published sets of a condition, whose source may be several joined by a plus."""
    return set(PUBLISHED).intersection(str(condition.work.get("source", "")).split("+"))
