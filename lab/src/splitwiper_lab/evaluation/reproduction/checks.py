"""What must hold in an experiment's results, and what the paper claims about them, each judged by the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from splitwiper.errors import ConfigError, nearest
from splitwiper_lab.evaluation.comparison import SeedSpread
from splitwiper_lab.evaluation.reproduction.experiment import Experiment, Subject
from splitwiper_lab.evaluation.reproduction.growth import (
    Check,
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

    def sentence(self, most: int = 6) -> str:
        """Return some of the figures as a sentence; empty if there are none."""
        shown = list(self.figures[:most])
        if len(self.figures) > most:
            shown.append(f"and {len(self.figures) - most} more")
        return "; ".join(shown) + "." if shown else ""


def judged(
    experiment: Experiment, results: Sequence[CellResult], names: Sequence[str] | None = None
) -> list[CheckVerdict]:
    """Judge every check and claim of an experiment.

    Raises:
        ConfigError: a check is not known.
    """
    verdicts = []
    for name in (*experiment.checks, *experiment.claims) if names is None else names:
        if name not in CHECKS:
            raise ConfigError(f"{experiment.id}: there is no check {name!r}.{nearest(name, CHECKS)}")
        says, check = CHECKS[name]
        figures: dict[bool, list[str]] = {True: [], False: []}
        for holds, figure in check(experiment, results):
            figures[holds].append(figure)
        # a single figure against a statement refutes it
        against = figures[False]
        held = not against if against or figures[True] else None
        verdicts.append(CheckVerdict(name, says, held, tuple(against or figures[True])))
    return verdicts


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _every_cell(
    whose: Callable[[Experiment], Sequence[Subject]], fault: Callable[[Mapping[str, SeedSpread]], str], good: str
) -> Check:
    """Create a check that must hold in every cell.

    Args:
        whose: returns the systems whose cells are checked.
        fault: says what is wrong with a cell's quantities; empty if nothing is.
        good: what is so in all cells if it holds.
    """

    def check(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
        spreads = over_seeds(experiment, results)
        names = {system.name for system in whose(experiment)}
        cells = 0
        for condition in experiment.conditions:
            for (name, system), values in spreads.items():
                if name == condition.name and system in names:
                    cells += 1
                    wrong = fault(values)
                    if wrong:
                        yield False, f"{name}, {system}: {wrong}"
        if cells:  # yielded with faults too: a verdict that does not hold shows only the figures against it
            many = f"each of {cells} combinations" if cells > 1 else "the one combination there is"
            yield True, f"{good} in {many}"

    return check


def _still_known(values: Mapping[str, SeedSpread]) -> str:
    share = mean(values, "unlearned.forgotten")
    return _percent(share) if share else ""


def _others_worked(values: Mapping[str, SeedSpread]) -> str:
    for cost in ("training", "sending", "flops", "bytes"):
        if mean(values, f"unlearned.others.{cost}"):
            return "others worked"
    return "others worked" if mean(values, "unlearned.took_part") != 1 else ""


def _not_exact(values: Mapping[str, SeedSpread]) -> str:
    return "not exact" if mean(values, "exact") != 1 else ""


def _retained_better(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    """Compare each baseline with SplitWiper without expansion."""
    spreads = over_seeds(experiment, results)
    for condition in experiment.conditions:
        mine = spreads.get((condition.name, "γ = 1"))  # the baselines do not expand labels
        for other in baselines(experiment):
            theirs = spreads.get((condition.name, other.name))
            if mine and theirs:
                lead = (mean(mine, "unlearned.retained") or 0.0) - (mean(theirs, "unlearned.retained") or 0.0)
                yield lead > 0, f"{condition.name}: {100 * lead:+.2f} points against {other.name}"


def _samples_decline(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    for (group, system), line in lines(experiment, over_seeds(experiment, results), "unlearned.forgotten").items():
        if len(line) > 1:
            falls = all(after < before for (_, before), (_, after) in pairwise(line))
            percents = [f"{100 * value:.1f}" for _, value in line]
            yield falls, f"{group}, {system}: {' → '.join(percents)} %"


def _hit_rate_falls(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    """Check that SplitWiper's hit rate is below vanilla's, as the paper says; also report both AUCs."""
    spreads = over_seeds(experiment, results)
    for condition in experiment.conditions:
        theirs = spreads.get((condition.name, "Vanilla"), {})
        for system in ours(experiment):
            mine = spreads.get((condition.name, system.name), {})
            hits, their_hits = mean(mine, "two models.hit_rate"), mean(theirs, "two models.hit_rate")
            auc, their_auc = mean(mine, "two models.auc"), mean(theirs, "two models.auc")
            if hits is None or their_hits is None or auc is None or their_auc is None:
                continue
            rates = f"hits {_percent(hits)} against {_percent(their_hits)}, AUC {auc:.2f} and {their_auc:.2f}"
            yield hits < their_hits, f"{condition.name}, {system.name}: {rates}"


def _hidden(attack: str, most: float) -> Check:
    """Create a check that an attack groups at most this share of labels perfectly at γ = 3."""

    def check(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
        spreads = over_seeds(experiment, results)
        for condition in experiment.conditions:
            for system in experiment.systems:
                share = mean(spreads.get((condition.name, system.name), {}), f"{attack}.perfect")
                if system.x == 3 and share is not None:  # the paper's figures are of γ = 3
                    yield share <= most, f"{condition.name}, {system.name}: {_percent(share)} perfect"

    return check


def _converges(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    for (condition, system), line in curves(results, "changed").items():
        # all answers are new in the first epoch, so the second is the first that says something
        first, last = line[min(1, len(line) - 1)].mean or 0.0, line[-1].mean or 0.0
        yield last <= 0.05, f"{condition}, {system}: {_percent(first)} → {_percent(last)} of answers change"


def _milliseconds(experiment: Experiment, results: Sequence[CellResult]) -> Iterable[tuple[bool, str]]:
    for (condition, system), values in over_seeds(experiment, results).items():
        seconds = values["seconds"].mean or 0.0
        yield seconds < 1, f"{condition}, {system}: {1000 * seconds:.0f} ms"


def _everybody(experiment: Experiment) -> Sequence[Subject]:
    return experiment.systems


_GONE = _every_cell(_everybody, _still_known, "0.00 %")
_IDLE = _every_cell(ours, _others_worked, "0 s, 0 operations, 0 bytes")
_EXACT = _every_cell(ours, _not_exact, "recomputed, bit for bit,")
_TIMES = ("learned.clients.sending", "learned.clients.flops")
CHECKS: dict[str, tuple[str, Check]] = {
    "forgotten-zero": ("the forgotten label has an accuracy of 0 %", _GONE),
    "others-nothing": ("other clients compute and send nothing while one forgets", _IDLE),
    "exact": ("the result is, bit for bit, the model that never had the rows", _EXACT),
    "retained-better": ("SplitWiper keeps more accuracy on other labels than the baselines", _retained_better),
    "samples-decline": ("the more samples are forgotten, the lower the accuracy on their label", _samples_decline),
    "hit-rate-falls": ("membership inference hits less than against vanilla split learning", _hit_rate_falls),
    "linear-in-epochs": ("the baselines' clients work and send in proportion to M", grows(_TIMES, baselines, 1)),
    "constant-in-epochs": ("SplitWiper's clients work and send the same whatever M is", grows(_TIMES, ours, 0)),
    "linear-in-gamma": ("bytes grow in proportion to γ", grows(("learned.clients.bytes",), ours, 1)),
    "exponents-client": ("clients' costs grow as the formulas say", client_formulas),
    "exponents-server": ("the server's work grows as the formulas say", server_formulas),
    "clusters-hidden": ("k-means with the elbow method groups at most 10 % perfectly at γ = 3", _hidden("elbow", 0.1)),
    "birch-hidden": ("BIRCH groups nothing perfectly at γ = 3", _hidden("birch", 0.0)),
    "converges": ("after the last epoch at most 5 % of answers still change", _converges),
    "milliseconds": ("agreeing on labels takes less than a second", _milliseconds),
}
"""Checks by name: the statement, and the function that judges it."""
