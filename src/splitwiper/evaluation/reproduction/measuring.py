"""Measure what is missing of an experiment, cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from splitwiper.errors import NotFoundError, TrainingError
from splitwiper.evaluation.reproduction.cells import Cell, cells, systems_of
from splitwiper.evaluation.reproduction.clustering import cluster
from splitwiper.evaluation.reproduction.comparing import compare
from splitwiper.evaluation.reproduction.consensus import consensus
from splitwiper.evaluation.reproduction.convergence import converge
from splitwiper.evaluation.reproduction.experiment import Condition, Experiment
from splitwiper.evaluation.reproduction.work import Bench

Measure = Callable[[Condition, Sequence[Mapping[str, Any]], int, Bench], Iterator[tuple[str, dict[str, Any]]]]
MEASURES: dict[str, Measure] = {
    "compare": compare,
    "cluster": cluster,
    "converge": converge,
    "consensus": consensus,
}
"""What is measured, by kind."""


def measured(
    experiment: Experiment,
    bench: Bench,
    *,
    done: Collection[Cell] = (),
    only: Sequence[str] = (),
    seeds: int | None = None,
    on: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Cells that are missing, one after another.

    Args:
        experiment: which.
        bench: where.
        done: cells that are there.
        only: texts of which one must be in a cell's condition or system.
        seeds: fewer seeds than the experiment has.
        on: asked before each cell whether to go on.

    Raises:
        TrainingError: some could not be trained; told when all others are through.
        NotFoundError: some data is not here; told likewise.
    """
    conditions = {condition.name: condition for condition in experiment.conditions}
    todo: dict[tuple[str, int], dict[str, Cell]] = {}
    for cell in cells(experiment):
        if cell in done or (seeds is not None and cell.seed >= seeds):
            continue
        if not only or any(text in f"{cell.condition}; {cell.system}" for text in only):
            todo.setdefault((cell.condition, cell.seed), {})[cell.system] = cell
    failed, lacking = list[str](), dict[str, None]()
    for (name, seed), wanted in todo.items():
        condition = conditions[name]
        systems = [system.settings for system in systems_of(experiment, condition) if system.name in wanted]
        if not on():
            return
        try:
            for system, values in MEASURES[experiment.kind](condition, systems, seed, bench):
                yield wanted[system], values
                if not on():
                    return
        except TrainingError as problem:
            failed.append(f"{name}, seed {seed}: {problem}")
        except NotFoundError as problem:  # other conditions may have their data
            lacking[str(problem)] = None
    if failed:
        raise TrainingError(" ".join(failed))
    if lacking:
        raise NotFoundError(" ".join(lacking))
