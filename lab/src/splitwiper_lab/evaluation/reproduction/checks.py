"""What must hold in an experiment's results, and what the paper claims about them, each judged by the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from itertools import pairwise

from splitwiper.errors import ConfigError, nearest
from splitwiper_lab.evaluation.reproduction.experiment import Experiment, Subject
from splitwiper_lab.evaluation.reproduction.growth import (
    Check,
    Found,
    baselines,
    client_formulas,
    grows,
    lines,
    mean,
    ours,
    server_formulas,
)
from splitwiper_lab.evaluation.reproduction.outcomes import curves, over_seeds
from splitwiper_lab.sweeps import CellResult

HOLDS, NOT, OPEN = "holds", "does not hold", "not measured yet"


def verdict_word(held: bool | None) -> str:
    """Return the verdict for an outcome; None means that there are no figures to judge by."""
    if held is None:
        return OPEN
    return HOLDS if held else NOT


@dataclass(frozen=True)
class CheckVerdict:
    """The outcome of a check.

    Attributes:
        name: the name of the check.
        says: the statement that is checked.
        held: whether it holds; None if there are no figures for it yet.
        figures: the figures it was judged by; if it does not hold, only those against it.
    """

    name: str
    says: str
    held: bool | None
    figures: tuple[str, ...]

    @property
    def word(self) -> str:
        """The outcome in words."""
        return verdict_word(self.held)

    def told(self, most: int = 6) -> str:
        """Return some of the figures as a sentence; empty if there are none."""
        more = (f"and {len(self.figures) - most} more",) if len(self.figures) > most else ()
        return "; ".join((*self.figures[:most], *more)) + "." if self.figures else ""


def judged(
    experiment: Experiment, results: Sequence[CellResult], names: Sequence[str] | None = None
) -> list[CheckVerdict]:
    """Judge every check and claim of an experiment.

    Raises:
        ConfigError: a check is not known.
    """
    out = []
    for name in (*experiment.checks, *experiment.claims) if names is None else names:
        if name not in CHECKS:
            raise ConfigError(f"{experiment.id}: there is no check {name!r}.{nearest(name, CHECKS)}")
        says, check = CHECKS[name]
        found = list(check(experiment, results))
        held = all(ok for ok, _ in found) if found else None
        told = [text for ok, text in found if not ok] or [text for _, text in found]
        out.append(CheckVerdict(name, says, held, tuple(told)))
    return out


# --- the parts of checks -------------------------------------------------------------------------------------


def _each(experiment: Experiment, found: Found, systems: Sequence[Subject]) -> Iterable[tuple[str, str]]:
    names = {s.name for s in systems}
    order = [condition.name for condition in experiment.conditions]
    return sorted((key for key in found if key[1] in names), key=lambda key: order.index(key[0]))


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


# --- forgetting ----------------------------------------------------------------------------------------------


def _in_each(cells: Sized) -> str:
    return f"in each of {len(cells)} combinations" if len(cells) > 1 else "in the one combination there is"


def _forgotten_zero(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    found = over_seeds(experiment, results)
    worst = {key: mean(found[key], "unlearned.forgotten") for key in _each(experiment, found, experiment.systems)}
    for (condition, system), share in worst.items():
        if share:
            yield False, f"{condition}, {system}: {_percent(share)}"
    if worst and not any(worst.values()):
        yield True, f"0.00 % {_in_each(worst)}"


def _others_nothing(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    found = over_seeds(experiment, results)
    every = list(_each(experiment, found, ours(experiment)))
    what = [f"unlearned.others.{name}" for name in ("training", "sending", "flops", "bytes")]
    for key in every:
        if any(mean(found[key], name) for name in what) or mean(found[key], "unlearned.took_part") != 1:
            yield False, f"{', '.join(key)}: others worked"
    if every:
        yield True, f"0 s, 0 operations, 0 bytes {_in_each(every)}"


def _exact(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    found = over_seeds(experiment, results)
    every = list(_each(experiment, found, ours(experiment)))
    for key in every:
        if mean(found[key], "exact") != 1:
            yield False, f"{', '.join(key)}: not exact"
    if every:
        yield True, f"recomputed, bit for bit, {_in_each(every)}"


def _retained_better(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    """Compare each baseline with SplitWiper without expansion."""
    found = over_seeds(experiment, results)
    for condition in experiment.conditions:
        mine = found.get((condition.name, "γ = 1"))
        for other in baselines(experiment):
            theirs = found.get((condition.name, other.name))
            if mine and theirs:
                a, b = (mean(v, "unlearned.retained") or 0.0 for v in (mine, theirs))
                yield a > b, f"{condition.name}: {100 * (a - b):+.2f} points against {other.name}"


def _samples_decline(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    found = over_seeds(experiment, results)
    for group, system, line in lines(experiment, found, "unlearned.forgotten"):
        if len(line) > 1:
            told = " → ".join(f"{100 * y:.1f}" for _, y in line)
            falls = all(after < before for (_, before), (_, after) in pairwise(line))
            yield falls, f"{group}, {system}: {told} %"


def _hit_rate_falls(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    """Check that SplitWiper's hit rate is below vanilla's, as the paper says; also report both AUCs."""
    found = over_seeds(experiment, results)
    for condition in experiment.conditions:
        theirs = found.get((condition.name, "Vanilla"))
        for system in ours(experiment):
            mine = found.get((condition.name, system.name))
            if not mine or not theirs:
                continue
            values = [mean(v, f"two models.{what}") for what in ("hit_rate", "auc") for v in (mine, theirs)]
            if None not in values:
                a, b, c, d = (float(v or 0) for v in values)
                who = f"{condition.name}, {system.name}"
                yield a < b, f"{who}: hits {_percent(a)} against {_percent(b)}, AUC {c:.2f} and {d:.2f}"


# --- hiding, convergence, agreement --------------------------------------------------------------------------


def _hidden(attack: str, most: float) -> Check:
    def check(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
        found = over_seeds(experiment, results)
        for condition in experiment.conditions:
            for system in experiment.systems:
                share = mean(found.get((condition.name, system.name), {}), f"{attack}.perfect")
                if system.x == 3 and share is not None:
                    yield share <= most, f"{condition.name}, {system.name}: {_percent(share)} perfect"

    return check


def _converges(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    for (condition, system), line in curves(results, "changed").items():
        first, last = line[min(1, len(line) - 1)].mean or 0.0, line[-1].mean or 0.0
        yield last <= 0.05, f"{condition}, {system}: {_percent(first)} → {_percent(last)} of answers change"


def _milliseconds(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    for (condition, system), values in over_seeds(experiment, results).items():
        seconds = values["seconds"].mean or 0.0
        yield seconds < 1, f"{condition}, {system}: {1000 * seconds:.0f} ms"


_TIMES = ("learned.clients.sending", "learned.clients.flops")
CHECKS: dict[str, tuple[str, Check]] = {
    "forgotten-zero": ("the forgotten label has an accuracy of 0 %", _forgotten_zero),
    "others-nothing": ("other clients compute and send nothing while one forgets", _others_nothing),
    "exact": ("the result is, bit for bit, the model that never had the rows", _exact),
    "retained-better": ("SplitWiper keeps more accuracy on other labels than the baselines", _retained_better),
    "samples-decline": ("the more samples are forgotten, the lower the accuracy on their label", _samples_decline),
    "hit-rate-falls": ("membership inference hits less than against vanilla split learning", _hit_rate_falls),
    "linear-in-epochs": ("the baselines' clients work and send in proportion to M", grows(_TIMES, "others", 1)),
    "constant-in-epochs": ("SplitWiper's clients work and send the same whatever M is", grows(_TIMES, "ours", 0)),
    "linear-in-gamma": ("bytes grow in proportion to γ", grows(("learned.clients.bytes",), "ours", 1)),
    "exponents-client": ("clients' costs grow as the formulas say", client_formulas),
    "exponents-server": ("the server's work grows as the formulas say", server_formulas),
    "clusters-hidden": ("k-means with the elbow method groups at most 10 % perfectly at γ = 3", _hidden("elbow", 0.1)),
    "birch-hidden": ("BIRCH groups nothing perfectly at γ = 3", _hidden("birch", 0.0)),
    "converges": ("after the last epoch at most 5 % of answers still change", _converges),
    "milliseconds": ("agreeing on labels takes less than a second", _milliseconds),
}
"""Checks by name: the statement, and the function that judges it."""
