"""Reproductions of the paper's results: experiments, their cells, and the measured quantities."""

from splitwiper_lab.evaluation.reproduction.cells import (
    Covered,
    about,
    cells,
    coverage,
    groups,
    outdated,
    read_experiment_results,
    select,
    totals,
)
from splitwiper_lab.evaluation.reproduction.checks import CheckVerdict, judged
from splitwiper_lab.evaluation.reproduction.experiment import (
    SCALES,
    Condition,
    Experiment,
    experiments,
    read_experiment,
    results_file,
)
from splitwiper_lab.evaluation.reproduction.runner import ExperimentMeasure
from splitwiper_lab.evaluation.reproduction.work import Bench

__all__ = [
    "SCALES",
    "Bench",
    "CheckVerdict",
    "Condition",
    "Covered",
    "Experiment",
    "ExperimentMeasure",
    "about",
    "cells",
    "coverage",
    "experiments",
    "groups",
    "judged",
    "outdated",
    "read_experiment",
    "read_experiment_results",
    "results_file",
    "select",
    "totals",
]
