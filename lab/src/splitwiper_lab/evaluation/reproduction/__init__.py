"""Reproductions of the paper's results: experiments, their cells, and the measured quantities."""

from splitwiper_lab.evaluation.reproduction.cells import (
    Cell,
    CellResult,
    Covered,
    cells,
    coverage,
    groups,
    keep,
    outdated,
    read_results,
)
from splitwiper_lab.evaluation.reproduction.checks import CheckVerdict, judged
from splitwiper_lab.evaluation.reproduction.experiment import (
    SCALES,
    Condition,
    Experiment,
    experiments,
    read_experiment,
)
from splitwiper_lab.evaluation.reproduction.parallel import measured_at_once
from splitwiper_lab.evaluation.reproduction.runner import measured, missing
from splitwiper_lab.evaluation.reproduction.work import Bench

__all__ = [
    "SCALES",
    "Bench",
    "Cell",
    "CellResult",
    "CheckVerdict",
    "Condition",
    "Covered",
    "Experiment",
    "cells",
    "coverage",
    "experiments",
    "groups",
    "judged",
    "keep",
    "measured",
    "measured_at_once",
    "missing",
    "outdated",
    "read_experiment",
    "read_results",
]
