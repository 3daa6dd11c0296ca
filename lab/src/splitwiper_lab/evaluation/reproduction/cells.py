"""The cells of an experiment: which there are, which are done, and their results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from splitwiper.seeding import digest
from splitwiper_lab.evaluation.reproduction.experiment import Condition, Experiment, Subject
from splitwiper_lab.sweeps import Cell, CellResult, matches, read_results


@dataclass(frozen=True)
class Covered:
    """How many seeds of one system under one condition are done."""

    condition: str
    system: str
    done: int
    wanted: int

    @property
    def is_missing(self) -> bool:
        """Whether some of its seeds are not measured yet."""
        return self.done < self.wanted


def cells(experiment: Experiment) -> list[Cell]:
    """Return every cell of an experiment, seeds outermost: each system gets one seed before any gets a second."""
    most = max(condition.seeds for condition in experiment.conditions)
    found = []
    for seed in range(most):
        for condition in experiment.conditions:
            if seed >= condition.seeds:
                continue
            for system in systems_of(experiment, condition):
                if not system.seeds or seed < system.seeds:
                    settings = settings_digest(experiment, condition, system)
                    found.append(Cell(condition.name, system.name, seed, settings))
    return found


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


def select(experiment: Experiment, *, only: Sequence[str] = (), seeds: int | None = None) -> list[Cell]:
    """Return some cells of an experiment.

    Args:
        experiment: the experiment.
        only: texts, one of which must be in a cell's title.
        seeds: a limit on the number of seeds.
    """
    most = seeds if seeds is not None else sys.maxsize
    return [cell for cell in cells(experiment) if cell.seed < most and matches(only, cell.title)]


def read_experiment_results(
    path: Path, experiment: Experiment, *, check: Callable[[CellResult], object] = lambda result: None
) -> list[CellResult]:
    """Read the results of an experiment in its present settings, each cell once.

    Args:
        path: the file.
        experiment: the experiment.
        check: called with each, to refuse those that cannot be shown.

    Raises:
        DataError: a line is damaged; the message names the file and the line.
    """
    return read_results(path, wanted=set(cells(experiment)).__contains__, check=check)


def outdated(path: Path, experiment: Experiment) -> int:
    """Count the results in a file that belong to other settings than the experiment's present ones."""
    present = {cell.settings for cell in cells(experiment)}
    return sum(result.cell.settings not in present for result in read_results(path))


def about(experiment: Experiment) -> dict[str, str]:
    """Return what each line of an experiment's file says about it."""
    return {"experiment": experiment.measured_as, "scale": experiment.scale}


def groups(results: Sequence[CellResult]) -> dict[tuple[str, str], list[CellResult]]:
    """Group results by condition and system, with seeds in order."""
    out: dict[tuple[str, str], list[CellResult]] = {}
    for result in sorted(results, key=lambda r: r.cell.seed):
        out.setdefault((result.cell.condition, result.cell.system), []).append(result)
    return out
