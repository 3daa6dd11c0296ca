"""Measure the missing cells of an experiment, one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from splitwiper.errors import NotFoundError, TrainingError
from splitwiper_lab.evaluation.reproduction.cells import Cell, cells, systems_of
from splitwiper_lab.evaluation.reproduction.clustering import cluster
from splitwiper_lab.evaluation.reproduction.comparing import compare
from splitwiper_lab.evaluation.reproduction.consensus import consensus
from splitwiper_lab.evaluation.reproduction.convergence import converge
from splitwiper_lab.evaluation.reproduction.experiment import Condition, Experiment
from splitwiper_lab.evaluation.reproduction.work import Bench

Measure = Callable[[Condition, Sequence[Mapping[str, Any]], int, Bench], Iterator[tuple[str, dict[str, Any]]]]
MEASURES: dict[str, Measure] = {
    "compare": compare,
    "cluster": cluster,
    "converge": converge,
    "consensus": consensus,
}
"""Measurement functions, by kind."""


def missing(
    experiment: Experiment, done: Collection[Cell] = (), *, only: Sequence[str] = (), seeds: int | None = None
) -> list[Cell]:
    """Return the cells that are still to be measured.

    Args:
        experiment: the experiment.
        done: cells that are already measured.
        only: texts, one of which must be in a cell's title.
        seeds: a limit on the number of seeds.
    """
    return [
        cell
        for cell in cells(experiment)
        if cell not in done
        and (seeds is None or cell.seed < seeds)
        and (not only or any(text in cell.title for text in only))
    ]


def measured(
    experiment: Experiment, wanted: Sequence[Cell], bench: Bench, *, on: Callable[[], bool] = lambda: True
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Yield cells one after another; cells with the same condition and seed share their data and start.

    Args:
        experiment: the experiment.
        wanted: the cells to measure.
        bench: the folders and the progress callback.
        on: called before each cell; False stops.

    Raises:
        TrainingError: some could not be trained; raised after all others are done.
        NotFoundError: some data is missing; raised likewise.
    """
    conditions = {condition.name: condition for condition in experiment.conditions}
    together: dict[tuple[str, int], dict[str, Cell]] = {}
    for cell in wanted:
        together.setdefault((cell.condition, cell.seed), {})[cell.system] = cell
    problems = Problems()
    for (name, seed), here in together.items():
        condition = conditions[name]
        systems = [system.settings for system in systems_of(experiment, condition) if system.name in here]
        if not on():
            return
        with problems.put_off(f"{name}, seed {seed}"):
            for system, values in MEASURES[experiment.kind](condition, systems, seed, bench):
                yield here[system], values
                if not on():
                    return
    problems.tell()


class Problems:
    """Collects errors of some cells, to be raised after all others are done."""

    def __init__(self) -> None:
        self._failed: list[str] = []
        self._lacking: dict[str, None] = {}

    @contextmanager
    def put_off(self, where: str) -> Iterator[None]:
        """Collect training errors and missing data: other conditions may still succeed."""
        try:
            yield
        except TrainingError as problem:
            self._failed.append(f"{where}: {problem}")
        except NotFoundError as problem:
            self._lacking[str(problem)] = None

    def tell(self) -> None:
        """Raise what was collected.

        Raises:
            TrainingError: some could not be trained.
            NotFoundError: some data is missing.
        """
        if self._failed:
            raise TrainingError(" ".join(self._failed))
        if self._lacking:
            raise NotFoundError(" ".join(self._lacking))
