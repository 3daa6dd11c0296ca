"""Cells: one system under one condition with one seed. What is there, what is missing, and files of results."""

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
        condition: under which.
        system: of what.
        seed: with which.
        settings: a digest of everything it depends on: results with another one are results of something else.
    """

    condition: str
    system: str
    seed: int
    settings: str

    @property
    def key(self) -> tuple[str, str, int]:
        """What a table calls it."""
        return self.condition, self.system, self.seed

    @property
    def title(self) -> str:
        """Its condition and system, as people name it."""
        return f"{self.condition}; {self.system}"


@dataclass(frozen=True)
class Result:
    """A cell that was measured.

    Attributes:
        cell: which.
        values: what came out, as the kind of measurement has it.
        made: on what, when, and from which source: fingerprint, version, date, commit.
    """

    cell: Cell
    values: Mapping[str, Any]
    made: Mapping[str, Any]


@dataclass(frozen=True)
class Covered:
    """How much of one system under one condition is there."""

    condition: str
    system: str
    done: int
    wanted: int


def cells(experiment: Experiment) -> list[Cell]:
    """Every cell of an experiment, seeds outermost: one of each comes before the second of any."""
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
    """The systems that are measured under a condition."""
    return [s for s in experiment.systems if not condition.only or s.name in condition.only]


def settings_digest(experiment: Experiment, condition: Condition, system: Subject) -> str:
    """What a cell's result depends on, but for the seed."""
    every = (experiment.kind, condition.work, condition.settings, system.settings)
    return digest(json.dumps(every, sort_keys=True, ensure_ascii=False))[:16]


def coverage(experiment: Experiment, results: Iterable[Result]) -> list[Covered]:
    """How many seeds of each cell are there."""
    there = {result.cell for result in results}
    out: dict[tuple[str, str], list[bool]] = {}
    for cell in sorted(cells(experiment), key=lambda c: c.seed):
        out.setdefault((cell.condition, cell.system), []).append(cell in there)
    order = {condition.name: place for place, condition in enumerate(experiment.conditions)}
    listed = [Covered(*key, sum(done), len(done)) for key, done in out.items()]
    return sorted(listed, key=lambda covered: order[covered.condition])


def read_results(path: Path, experiment: Experiment) -> list[Result]:
    """The results of an experiment as it is set now, each cell once. A last line that was cut short is left out.

    Raises:
        DataError: a line before the last is damaged.
    """
    wanted, found = set(cells(experiment)), dict[Cell, Result]()
    for line in _lines(path):
        cell = Cell(line["condition"], line["system"], line["seed"], line["settings"])
        if cell in wanted:
            found.setdefault(cell, Result(cell, line["values"], line["made"]))
    return list(found.values())


def outdated(path: Path, experiment: Experiment) -> int:
    """How many results in a file are of other settings than the experiment has now."""
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


def keep(path: Path, experiment: Experiment, result: Result) -> None:
    """Add a result to a file; what is left of a line that was cut short goes."""
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


def groups(results: Sequence[Result]) -> dict[tuple[str, str], list[Result]]:
    """Results by condition and system, seeds in order."""
    out: dict[tuple[str, str], list[Result]] = {}
    for result in sorted(results, key=lambda r: r.cell.seed):
        out.setdefault((result.cell.condition, result.cell.system), []).append(result)
    return out
