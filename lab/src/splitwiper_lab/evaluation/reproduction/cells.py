"""Cells: one system under one condition with one seed. Which are done, which are missing, and files of results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitwiper.errors import DataError
from splitwiper.seeding import digest
from splitwiper_lab.evaluation.lines import append_line, is_whole
from splitwiper_lab.evaluation.reproduction.experiment import Condition, Experiment, Subject


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes:
        condition: the name of the condition.
        system: the name of the system.
        seed: the seed.
        settings: a digest of everything the cell depends on: a result with another digest is of another configuration.
    """

    condition: str
    system: str
    seed: int
    settings: str

    @property
    def key(self) -> tuple[str, str, int]:
        """The cell's identity in a table."""
        return self.condition, self.system, self.seed

    @property
    def title(self) -> str:
        """The condition and system, for people."""
        return f"{self.condition}; {self.system}"


@dataclass(frozen=True)
class CellResult:
    """The result of a measured cell.

    Attributes:
        cell: the cell.
        values: the measured values, in the form of the experiment's kind.
        made: provenance: fingerprint, version, date, commit.
    """

    cell: Cell
    values: Mapping[str, Any]
    made: Mapping[str, Any]


@dataclass(frozen=True)
class Covered:
    """How many seeds of one system under one condition are done."""

    condition: str
    system: str
    done: int
    wanted: int


def cells(experiment: Experiment) -> list[Cell]:
    """Return every cell of an experiment, seeds outermost: each system gets one seed before any gets a second."""
    most = max(condition.seeds for condition in experiment.conditions)
    return [
        Cell(condition.name, system.name, seed, settings_digest(experiment, condition, system))
        for seed in range(most)
        for condition in experiment.conditions
        if seed < condition.seeds
        for system in systems_of(experiment, condition)
        if not system.seeds or seed < system.seeds
    ]


def systems_of(experiment: Experiment, condition: Condition) -> list[Subject]:
    """Return the systems that are measured under a condition."""
    return [s for s in experiment.systems if not condition.only or s.name in condition.only]


def settings_digest(experiment: Experiment, condition: Condition, system: Subject) -> str:
    """Return a digest of everything a cell's result depends on, except the seed."""
    every = (experiment.kind, condition.work, condition.settings, system.settings)
    return digest(json.dumps(every, sort_keys=True, ensure_ascii=False))[:16]


def coverage(experiment: Experiment, results: Iterable[CellResult]) -> list[Covered]:
    """Count the seeds of each condition and system that are done."""
    there = {result.cell for result in results}
    out: dict[tuple[str, str], list[bool]] = {}
    for cell in sorted(cells(experiment), key=lambda c: c.seed):
        out.setdefault((cell.condition, cell.system), []).append(cell in there)
    order = {condition.name: place for place, condition in enumerate(experiment.conditions)}
    listed = [Covered(*key, sum(done), len(done)) for key, done in out.items()]
    return sorted(listed, key=lambda covered: order[covered.condition])


def read_results(path: Path, experiment: Experiment) -> list[CellResult]:
    """Read the results of an experiment in its present settings, each cell once. A truncated last line is ignored.

    Raises:
        DataError: a line before the last is damaged.
    """
    wanted, found = set(cells(experiment)), dict[Cell, CellResult]()
    for line in _lines(path):
        cell = Cell(line["condition"], line["system"], line["seed"], line["settings"])
        if cell in wanted:
            found.setdefault(cell, CellResult(cell, line["values"], line["made"]))
    return list(found.values())


def outdated(path: Path, experiment: Experiment) -> int:
    """Count the results in a file that belong to other settings than the experiment's present ones."""
    wanted = {cell.settings for cell in cells(experiment)}
    return sum(line["settings"] not in wanted for line in _lines(path))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    for number, line in enumerate(lines):
        try:
            if line:
                values = json.loads(line)
                _check(values)
                yield values
        except (ValueError, KeyError, TypeError) as problem:
            if number < len(lines) - 1 or is_whole(line):
                raise DataError(
                    f"{path}, line {number + 1} is no result ({problem}). Take that line away, or move the file; "
                    "the cell is then measured again."
                ) from problem


def _check(values: Any) -> None:
    for key, kind in (("condition", str), ("system", str), ("seed", int), ("settings", str), ("values", dict)):
        if not isinstance(values[key], kind):
            raise TypeError(f"{key} is {values[key]!r}")
    if not isinstance(values["made"], dict):
        raise TypeError("made is no table")


def keep(path: Path, experiment: Experiment, result: CellResult) -> None:
    """Append a result to a file, after removing a truncated last line."""
    line = {
        "experiment": experiment.measured_as,
        "scale": experiment.scale,
        "condition": result.cell.condition,
        "system": result.cell.system,
        "seed": result.cell.seed,
        "settings": result.cell.settings,
        "values": result.values,
        "made": result.made,
    }
    append_line(path, json.dumps(line, ensure_ascii=False, allow_nan=False))


def groups(results: Sequence[CellResult]) -> dict[tuple[str, str], list[CellResult]]:
    """Group results by condition and system, with seeds in order."""
    out: dict[tuple[str, str], list[CellResult]] = {}
    for result in sorted(results, key=lambda r: r.cell.seed):
        out.setdefault((result.cell.condition, result.cell.system), []).append(result)
    return out
