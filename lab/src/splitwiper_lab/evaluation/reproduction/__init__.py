"""The paper's results, measured again: experiments, their cells, and what comes out of them."""

from splitwiper_lab.evaluation.reproduction.cells import (
    Cell,
    Covered,
    Result,
    cells,
    coverage,
    groups,
    keep,
    outdated,
    read_results,
)
from splitwiper_lab.evaluation.reproduction.checks import Verdict, judged
from splitwiper_lab.evaluation.reproduction.experiment import (
    SCALES,
    Condition,
    Experiment,
    experiments,
    read_experiment,
)
from splitwiper_lab.evaluation.reproduction.measuring import measured, missing
from splitwiper_lab.evaluation.reproduction.parallel import measured_at_once
from splitwiper_lab.evaluation.reproduction.work import Bench

__all__ = [
    "SCALES",
    "Bench",
    "Cell",
    "Condition",
    "Covered",
    "Experiment",
    "Result",
    "Verdict",
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
