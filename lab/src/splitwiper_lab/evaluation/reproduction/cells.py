"""The cells of an experiment: which there are, which are done, and their results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
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
    found = []
    for condition in experiment.conditions:
        for system in systems_of(experiment, condition):
            settings = settings_digest(experiment, condition, system)
            # a system may have fewer seeds than its condition, not more
            for seed in range(min(condition.seeds, system.seeds or condition.seeds)):
                found.append(Cell(condition.name, system.name, seed, settings))
    return sorted(found, key=attrgetter("seed"))  # which leaves cells with the same seed in their order


def systems_of(experiment: Experiment, condition: Condition) -> list[Subject]:
    """Return the systems that are measured under a condition."""
    return [s for s in experiment.systems if not condition.only or s.name in condition.only]


def settings_digest(experiment: Experiment, condition: Condition, system: Subject) -> str:
    """Return a digest of everything a cell's result depends on, except the seed."""
    every = (experiment.kind, condition.work, condition.settings, system.settings)
    return digest(json.dumps(every, sort_keys=True, ensure_ascii=False))[:16]


def coverage(experiment: Experiment, results: Iterable[CellResult]) -> list[Covered]:
    """Count the seeds of each condition and system that are done."""
    done, wanted = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    present = {result.cell for result in results}
    for cell in cells(experiment):
        wanted[cell.condition, cell.system] += 1  # one for each seed
        done[cell.condition, cell.system] += cell in present
    covered = []
    for condition in experiment.conditions:
        for system in systems_of(experiment, condition):
            key = condition.name, system.name
            covered.append(Covered(*key, done[key], wanted[key]))
    return covered


def totals(covered: Iterable[Covered]) -> tuple[int, int]:
    """Return how many cells are done, and how many there are."""
    done, wanted = 0, 0
    for one in covered:
        done += one.done
        wanted += one.wanted
    return done, wanted


def select(experiment: Experiment, *, only: Sequence[str] = (), seeds: int | None = None) -> list[Cell]:
    """Return some cells of an experiment."""
    chosen = []
    for cell in cells(experiment):
        if (seeds is None or cell.seed < seeds) and matches(only, cell.title):
            chosen.append(cell)
    return chosen


def read_experiment_results(
    path: Path, experiment: Experiment, *, check: Callable[[CellResult], object] = lambda result: None
) -> list[CellResult]:
    """Read the results of an experiment in its present settings, each cell once; ``check`` refuses damaged ones.

    Raises:
        DataError: a line is damaged; the message names the file and the line.
    """
    return read_results(path, wanted=set(cells(experiment)).__contains__, check=check)


def outdated(path: Path, experiment: Experiment) -> int:
    """Count the results in a file that belong to other settings than the experiment's present ones."""
    present = set(map(attrgetter("settings"), cells(experiment)))
    return len(read_results(path, wanted=lambda cell: cell.settings not in present))


def about(experiment: Experiment) -> dict[str, str]:
    """Return what each line of an experiment's file says about it."""
    return {"experiment": experiment.measured_as, "scale": experiment.scale}


def groups(results: Iterable[CellResult]) -> dict[tuple[str, str], list[CellResult]]:
    """Group results by condition and system, with seeds in order."""
    found: dict[tuple[str, str], list[CellResult]] = {}
    for result in sorted(results, key=attrgetter("cell.seed")):
        found.setdefault((result.cell.condition, result.cell.system), []).append(result)
    return found
