"""Measure cells of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splitwiper_lab.evaluation.reproduction.cells import systems_of
from splitwiper_lab.evaluation.reproduction.clustering import cluster
from splitwiper_lab.evaluation.reproduction.comparing import compare
from splitwiper_lab.evaluation.reproduction.consensus import consensus
from splitwiper_lab.evaluation.reproduction.convergence import converge
from splitwiper_lab.evaluation.reproduction.experiment import Condition, Experiment
from splitwiper_lab.evaluation.reproduction.work import Bench
from splitwiper_lab.sweeps import Cell

MeasureKind = Callable[[Condition, Sequence[Mapping[str, Any]], int, Bench], Iterator[tuple[str, dict[str, Any]]]]
MEASURES: dict[str, MeasureKind] = {
    "compare": compare,
    "cluster": cluster,
    "converge": converge,
    "consensus": consensus,
}
"""Measurement functions, by kind."""


@dataclass(frozen=True)
class ExperimentMeasure:
    """Measures cells of an experiment that have the same condition and seed; for `splitwiper_lab.sweeps.sweep`.

    Attributes:
        experiment: the experiment.
        bench: the folders and the progress callback.
    """

    experiment: Experiment
    bench: Bench

    def __call__(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, dict[str, Any]]]:
        """Yield each cell with its values."""
        (condition,) = (c for c in self.experiment.conditions if c.name == cells[0].condition)
        wanted = {cell.system: cell for cell in cells}
        systems = [one.settings for one in systems_of(self.experiment, condition) if one.name in wanted]
        measure = MEASURES[self.experiment.kind]
        for system, values in measure(condition, systems, cells[0].seed, self.bench):
            yield wanted[system], values
