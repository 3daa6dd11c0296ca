"""Growth: how costs grow with epochs, clients and the expansion of labels, compared with the paper's formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from splitwiper_lab.evaluation.comparison import SeedSpread
from splitwiper_lab.evaluation.reproduction.experiment import Experiment, Subject
from splitwiper_lab.evaluation.reproduction.outcomes import over_seeds
from splitwiper_lab.sweeps import CellResult

Spreads = Mapping[tuple[str, str], Mapping[str, SeedSpread]]
"""Quantities over seeds, by condition and system."""
Check = Callable[[Experiment, Sequence[CellResult]], Iterable[tuple[bool, str]]]
"""Judges results: yields whether each part holds, and its figures."""
Fitted = Mapping[tuple[str, str], tuple[float | None, int]]
"""Exponents and the number of points behind each, by axis and system."""
Line = list[tuple[float, float]]
"""Positions on an axis, and values there."""
_CLOSE = 0.05
"""The tolerance for a fitted exponent's distance from its formula's."""


def ours(experiment: Experiment) -> list[Subject]:
    """Return SplitWiper and SplitWiper+."""
    return _of_kinds(experiment, "splitwiper")


def baselines(experiment: Experiment) -> list[Subject]:
    """Return the baselines: conventional split learning."""
    return _of_kinds(experiment, "vanilla", "u-shaped")


def _of_kinds(experiment: Experiment, *kinds: str) -> list[Subject]:
    return [system for system in experiment.systems if system.settings.get("kind") in kinds]


def mean(values: Mapping[str, SeedSpread], name: str) -> float | None:
    """Return a quantity's mean over seeds; None if it is missing."""
    return values[name].mean if name in values else None


def lines(experiment: Experiment, spreads: Spreads, quantity: str) -> dict[tuple[str, str], Line]:
    """Return a quantity over the conditions' places on an axis, by group of conditions and system."""
    found: dict[tuple[str, str], Line] = {}
    for condition in experiment.conditions:
        # the condition that both axes start from is a point of both
        for group in condition.group.split() if condition.group == "M K" else [condition.group]:
            for system in experiment.systems:
                value = mean(spreads.get((condition.name, system.name), {}), quantity)
                if condition.x is not None and value is not None:
                    found.setdefault((group, system.name), []).append((condition.x, value))
    for line in found.values():
        line.sort()  # conditions need not be in the order of their places
    return found


def exponent(line: Line) -> float | None:
    """Fit the slope of ``log y`` over ``log x``: 0 is constant, 1 is linear. None if there is nothing to fit.

    >>> round(exponent([(1, 3), (2, 6), (4, 12)]), 6), exponent([(1, 5), (2, 5)]), exponent([(1, 0), (2, 0)])
    (1.0, 0.0, 0.0)
    """
    x, y = np.array(line).T
    if len(set(x)) < 2:  # one place has no slope
        return None
    if not y.any():  # no cost at all stays none; its logarithm does not exist
        return 0.0
    if x.min() <= 0 or y.min() <= 0:
        return None
    slope = float(np.polyfit(np.log(x), np.log(y), 1)[0])
    return 0.0 if abs(slope) < 1e-12 else slope  # rounding would give a constant a sign


def exponents(
    experiment: Experiment, results: Sequence[CellResult], quantity: str
) -> dict[tuple[str, str], tuple[float | None, int]]:
    """Fit the exponent of a quantity over each axis; also return the number of points, by axis and system."""
    spreads = over_seeds(experiment, results)
    found = lines(experiment, spreads, quantity)
    # γ is a setting of systems, not of conditions, so its axis runs over the systems of the first condition
    first = experiment.conditions[0].name
    for system in experiment.systems:
        value = mean(spreads.get((first, system.name), {}), quantity)
        if system.x is not None and value is not None:
            found.setdefault(("γ", system.group), []).append((system.x, value))
    return {key: (exponent(line), len(line)) for key, line in found.items()}


def grows(quantities: Sequence[str], whose: Callable[[Experiment], list[Subject]], wanted: float) -> Check:
    """Create a check that quantities of some systems grow with the exponent ``wanted``."""

    def check(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
        names = set[str]()
        for system in whose(experiment):
            names |= {system.name, system.group}
        for quantity in quantities:
            for (axis, name), (slope, points) in exponents(experiment, results, quantity).items():
                if name in names and slope is not None and points > 1:
                    where = f"{axis}, {name}" if axis else name
                    yield abs(slope - wanted) <= _CLOSE, f"{where}, {quantity}: {slope:.3f}"

    return check


Formulas = dict[str, tuple[str, dict[str, float]]]
"""By system: the paper's formulas, and the exponents that they imply, by axis."""
_SERVER: Formulas = {
    "Vanilla": ("O(M·H_S), O(M·I_loss), O(W_S)", {"M": 1, "K": 1}),
    "U-shaped": ("O(M·(H_S − H_out)), O(M·I_S), O(W_S)", {"M": 1, "K": 1}),
    "SplitWiper": ("O(M·H_S), none, O(K·D + W_S)", {"M": 1, "K": 1}),
    "SplitWiper+": ("O(M·H_S), none, O(K·γ·D + W_S)", {"M": 1, "K": 1, "γ": 1}),
}
_BASELINES: Formulas = {
    "Vanilla": ("O(M·K·H_K), O(M·K·(I_K + I_Y))", {"M": 1, "K": 1}),
    "U-shaped": ("O(M·K·(H_K + H_out)), O(M·K·I_K)", {"M": 1, "K": 1}),
}
FORMULAS: dict[str, dict[str, Formulas]] = {
    "client": {
        "learned": {
            **_BASELINES,
            "SplitWiper": ("O(K·H_K), O(K·(I_K + I_Y))", {"M": 0, "K": 1}),
            "SplitWiper+": ("O(K·(H_K + γ·H_exp)), O(K·γ·(I_K + I_Y))", {"M": 0, "K": 1, "γ": 1}),
        },
        "unlearned": {
            **_BASELINES,
            "SplitWiper": ("O(H_K), O(I_K + I_Y)", {"M": 0, "K": 0}),
            "SplitWiper+": ("O(H_K + γ·H_exp), O(γ·(I_K + I_Y))", {"M": 0, "K": 0, "γ": 1}),
        },
    },
    "server": {"learned": _SERVER, "unlearned": _SERVER},
}
"""By side and phase: formulas of computing, sending and storing, with the exponents for computing and sending. H_S is
one epoch over all clients' rows, so it grows with K. The server trains in the same way to learn and to unlearn, and so
do the baselines' clients."""


def client_formulas(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    """Check that clients compute and send as the formulas say."""
    for phase in FORMULAS["client"]:
        for quantity in ("flops", "bytes"):
            fitted = exponents(experiment, results, f"{phase}.clients.{quantity}")
            yield from _fitting(fitted, "client", phase, quantity)


def server_formulas(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    """Check that the server computes as the formulas say."""
    for phase in FORMULAS["server"]:
        fitted = exponents(experiment, results, f"{phase}.server.flops")
        yield from _fitting(fitted, "server", phase, "operations")


def _fitting(fitted: Fitted, side: str, phase: str, quantity: str) -> Iterable[tuple[bool, str]]:
    """Compare fitted exponents with those of one side's formulas in one phase."""
    for system, (_, exponents_meant) in FORMULAS[side][phase].items():
        for axis, meant in exponents_meant.items():
            # copies of a row are stored, not computed
            wanted = 0.0 if (quantity, axis) == ("flops", "γ") else meant
            for (fitted_axis, name), (slope, points) in fitted.items():
                if fitted_axis == axis and name.split(",")[0] == system and slope is not None and points > 1:
                    text = f"{phase}, {quantity}, {name} over {axis}: {slope:.2f} (formula {wanted:g})"
                    yield abs(slope - wanted) <= _CLOSE, text
