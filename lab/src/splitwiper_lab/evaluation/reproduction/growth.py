"""Growth: how costs grow with epochs, clients and the expansion of labels, compared with the paper's formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from splitwiper_lab.evaluation.comparison import SeedSpread
from splitwiper_lab.evaluation.reproduction.experiment import Experiment, Subject
from splitwiper_lab.evaluation.reproduction.outcomes import over_seeds
from splitwiper_lab.evaluation.reproduction.power_law import exponent
from splitwiper_lab.sweeps import CellResult

Found = Mapping[tuple[str, str], Mapping[str, SeedSpread]]
"""Quantities over seeds, by condition and system."""
Check = Callable[[Experiment, Sequence[CellResult]], Iterable[tuple[bool, str]]]
"""Judges results: yields whether each part holds, and its figures."""
Fitted = Mapping[tuple[str, str], tuple[float | None, int]]
"""Exponents and the number of points behind each, by axis and system."""
_CLOSE = 0.05
"""The tolerance for a fitted exponent's distance from its formula's."""


def ours(experiment: Experiment) -> list[Subject]:
    """Return SplitWiper and SplitWiper+."""
    return [s for s in experiment.systems if s.settings.get("kind") == "splitwiper"]


def baselines(experiment: Experiment) -> list[Subject]:
    """Return the baselines: conventional split learning."""
    return [s for s in experiment.systems if s.settings.get("kind") in ("vanilla", "u-shaped")]


def mean(values: Mapping[str, SeedSpread], name: str) -> float | None:
    """Return a quantity's mean over seeds; None if it is missing."""
    return values[name].mean if name in values else None


def lines(experiment: Experiment, found: Found, what: str) -> Sequence[tuple[str, str, list[tuple[float, float]]]]:
    """Return (group of conditions, system, line), where a line is a quantity over the conditions' places."""
    found_lines: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for condition in experiment.conditions:
        # the condition that both axes start from is a point of both
        for group in condition.group.split() if condition.group == "M K" else [condition.group]:
            for system in experiment.systems:
                value = mean(found.get((condition.name, system.name), {}), what)
                if condition.x is not None and value is not None:
                    found_lines.setdefault((group, system.name), []).append((condition.x, value))
    return [(*key, sorted(line)) for key, line in found_lines.items()]


def exponents(
    experiment: Experiment, results: Sequence[CellResult], what: str
) -> dict[tuple[str, str], tuple[float | None, int]]:
    """Fit the exponent of a quantity over each axis; also return the number of points, by axis and system."""
    found = over_seeds(experiment, results)
    out: dict[tuple[str, str], tuple[float | None, int]] = {}
    for group, name, line in lines(experiment, found, what):
        out[group, name] = exponent([x for x, _ in line], [y for _, y in line]), len(line)
    # γ is a setting of systems, not of conditions, so its axis runs over the systems of the first condition
    across: dict[str, list[tuple[float, float]]] = {}
    for condition in experiment.conditions[:1]:
        for system in experiment.systems:
            value = mean(found.get((condition.name, system.name), {}), what)
            if system.x is not None and value is not None:
                across.setdefault(system.group, []).append((system.x, value))
    for system_group, line in across.items():
        out["γ", system_group] = exponent([x for x, _ in line], [y for _, y in line]), len(line)
    return out


def grows(what: Sequence[str], systems: str, wanted: float) -> Check:
    """Create a check that quantities of SplitWiper (``ours``) or the baselines grow with the exponent ``wanted``."""

    def check(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
        chosen = ours(experiment) if systems == "ours" else baselines(experiment)
        names = {s.name for s in chosen} | {s.group for s in chosen}
        for quantity in what:
            for (axis, system), (slope, points) in exponents(experiment, results, quantity).items():
                if system in names and slope is not None and points > 1:
                    where = f"{axis}, {system}" if axis else system
                    yield abs(slope - wanted) <= _CLOSE, f"{where}, {quantity}: {slope:.3f}"

    return check


FORMULAS: dict[str, dict[str, dict[str, tuple[str, dict[str, float]]]]] = {
    "client": {
        "learned": {
            "Vanilla": ("O(M·K·H_K), O(M·K·(I_K + I_Y))", {"M": 1, "K": 1}),
            "U-shaped": ("O(M·K·(H_K + H_out)), O(M·K·I_K)", {"M": 1, "K": 1}),
            "SplitWiper": ("O(K·H_K), O(K·(I_K + I_Y))", {"M": 0, "K": 1}),
            "SplitWiper+": ("O(K·(H_K + γ·H_exp)), O(K·γ·(I_K + I_Y))", {"M": 0, "K": 1, "γ": 1}),
        },
        "unlearned": {
            "Vanilla": ("O(M·K·H_K), O(M·K·(I_K + I_Y))", {"M": 1, "K": 1}),
            "U-shaped": ("O(M·K·(H_K + H_out)), O(M·K·I_K)", {"M": 1, "K": 1}),
            "SplitWiper": ("O(H_K), O(I_K + I_Y)", {"M": 0, "K": 0}),
            "SplitWiper+": ("O(H_K + γ·H_exp), O(γ·(I_K + I_Y))", {"M": 0, "K": 0, "γ": 1}),
        },
    },
    "server": {
        phase: {
            "Vanilla": ("O(M·H_S), O(M·I_loss), O(W_S)", {"M": 1, "K": 1}),
            "U-shaped": ("O(M·(H_S − H_out)), O(M·I_S), O(W_S)", {"M": 1, "K": 1}),
            "SplitWiper": ("O(M·H_S), none, O(K·D + W_S)", {"M": 1, "K": 1}),
            "SplitWiper+": ("O(M·H_S), none, O(K·γ·D + W_S)", {"M": 1, "K": 1, "γ": 1}),
        }
        for phase in ("learned", "unlearned")
    },
}
"""By side, phase and system: the paper's formulas (computing, sending, storing), and the exponents they imply for
computing and sending. H_S is one epoch over all clients' rows, so it grows with K. The server's formulas are the same
for unlearning as for learning, since it trains in the same way."""


def client_formulas(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    """Check that clients compute and send as the formulas say."""
    for phase, rows in FORMULAS["client"].items():
        for what in ("flops", "bytes"):
            fitted = exponents(experiment, results, f"{phase}.clients.{what}")
            for system, (_, wanted) in rows.items():
                for axis, value in wanted.items():
                    if what == "flops" and axis == "γ":  # copies are stored, not computed
                        value = 0
                    yield from _fitting(fitted, axis, system, value, f"{phase}, {what}")


def server_formulas(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    """Check that the server computes as the formulas say."""
    for phase, rows in FORMULAS["server"].items():
        fitted = exponents(experiment, results, f"{phase}.server.flops")
        for system, (_, wanted) in rows.items():
            for axis, value in wanted.items():
                yield from _fitting(fitted, axis, system, value, f"{phase}, operations")


def _fitting(
    fitted: Fitted,
    axis: str,
    system: str,
    wanted: float,
    what: str,
) -> Iterable[tuple[bool, str]]:
    for (there, name), (slope, points) in fitted.items():
        if there == axis and name.split(",")[0] == system and slope is not None and points > 1:
            yield abs(slope - wanted) <= _CLOSE, f"{what}, {name} over {axis}: {slope:.2f} (formula {wanted:g})"
