"""Growth: how costs grow with epochs, clients and the expansion of labels, beside the paper's formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from splitwiper_lab.evaluation.comparison import Spread
from splitwiper_lab.evaluation.reproduction.cells import Result
from splitwiper_lab.evaluation.reproduction.experiment import Experiment, Subject
from splitwiper_lab.evaluation.reproduction.fitting import exponent
from splitwiper_lab.evaluation.reproduction.outcomes import over_seeds

Found = Mapping[tuple[str, str], Mapping[str, Spread]]
"""Quantities over seeds, by condition and system."""
Check = Callable[[Experiment, Sequence[Result]], Iterable[tuple[bool, str]]]
"""Judges results: whether each part holds, and its figures."""
Fitted = Mapping[tuple[str, str], tuple[float | None, int]]
"""An exponent and of how many points, by axis and system."""
_CLOSE = 0.05
"""How far a fitted exponent may be from its formula's."""


def ours(experiment: Experiment) -> list[Subject]:
    """SplitWiper and SplitWiper+."""
    return [s for s in experiment.systems if s.settings.get("kind") == "splitwiper"]


def baselines(experiment: Experiment) -> list[Subject]:
    """Split learning as it was."""
    return [s for s in experiment.systems if s.settings.get("kind") in ("vanilla", "u-shaped")]


def mean(values: Mapping[str, Spread], name: str) -> float | None:
    """A quantity's mean over seeds; None where it is not there."""
    return values[name].mean if name in values else None


def lines(experiment: Experiment, found: Found, what: str) -> Sequence[tuple[str, str, list[tuple[float, float]]]]:
    """By group of conditions and system: a quantity over the conditions' place."""
    found_lines: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for condition in experiment.conditions:
        for group in condition.group.split() if condition.group == "M K" else [condition.group]:
            for system in experiment.systems:
                value = mean(found.get((condition.name, system.name), {}), what)
                if condition.x is not None and value is not None:
                    found_lines.setdefault((group, system.name), []).append((condition.x, value))
    return [(*key, sorted(line)) for key, line in found_lines.items()]


def exponents(
    experiment: Experiment, results: Sequence[Result], what: str
) -> dict[tuple[str, str], tuple[float | None, int]]:
    """The exponent of a quantity over each axis, and of how many points; by axis and system."""
    found = over_seeds(experiment, results)
    out: dict[tuple[str, str], tuple[float | None, int]] = {}
    for group, name, line in lines(experiment, found, what):
        out[group, name] = exponent([x for x, _ in line], [y for _, y in line]), len(line)
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
    """That quantities of SplitWiper (``ours``) or the baselines grow with such an exponent."""

    def check(experiment: Experiment, results: Sequence[Result]) -> Iterable[tuple[bool, str]]:
        chosen = ours(experiment) if systems == "ours" else baselines(experiment)
        names = {s.name for s in chosen} | {s.group for s in chosen}
        for quantity in what:
            for (axis, system), (slope, points) in exponents(experiment, results, quantity).items():
                if system in names and slope is not None and points > 1:
                    told = (
                        f"{axis}, {system}, {quantity}: {slope:.3f}" if axis else f"{system}, {quantity}: {slope:.3f}"
                    )
                    yield abs(slope - wanted) <= _CLOSE, told

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
"""By side, phase and system: the paper's formulas (computing, sending, storing), and the exponents they mean for what
is computed and sent. H_S is one epoch over everybody's rows, so it grows with K. The server's rows for unlearning are
those of learning, since it trains as it did."""


def client_formulas(experiment: Experiment, results: Sequence[Result]) -> Iterable[tuple[bool, str]]:
    """That clients compute and send as the formulas say."""
    for phase, rows in FORMULAS["client"].items():
        for what in ("flops", "bytes"):
            fitted = exponents(experiment, results, f"{phase}.clients.{what}")
            for system, (_, wanted) in rows.items():
                for axis, value in wanted.items():
                    if what == "flops" and axis == "γ":  # copies are written, not computed
                        value = 0
                    yield from _fitting(fitted, axis, system, value, f"{phase}, {what}")


def server_formulas(experiment: Experiment, results: Sequence[Result]) -> Iterable[tuple[bool, str]]:
    """That the server computes as they say."""
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
