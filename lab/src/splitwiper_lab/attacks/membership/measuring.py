"""Score membership attacks, and compare them with the ideal: the same attack on a model trained without the rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from splitwiper.errors import DataError
from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.membership.pairs import Knowledge, ModelPair
from splitwiper_lab.attacks.membership.roc import Z, auc, auc_interval, placements, standard_error, tpr_at

RATES = (0.01, 0.1)
"""False positive rates at which hits are reported."""
_ALIKE = 0.1
"""Share of candidates whose label may occur on one side only before an outcome notes it."""
MARGIN = 0.05
"""Differences between areas of at most this size do not matter."""
Verdict = Literal["equal", "more", "less", "undecided"]


@dataclass(frozen=True)
class MembershipComparison:
    """How much better or worse an attack does on unlearned rows than on the same rows never trained on.

    Equal is the goal. Less is not better than more: a model that forgets too much, for example one that is more often
    wrong on unlearned rows than chance, also gives them away, to anyone who inverts the attack.

    Attributes:
        auc: area under the ROC curve of the attack on the unlearned model.
        reference_auc: that of the same attack on the reference.
        difference: the first minus the second.
        interval: 95 % interval of the difference, by DeLong's covariance on the same candidates.
        verdict: "equal" if the interval is within `MARGIN` of 0; "more" or "less" exposed than the reference if it does
            not contain 0; otherwise "undecided": there are too few rows to decide.
    """

    auc: float
    reference_auc: float
    difference: float
    interval: tuple[float, float]
    verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**vars(self), "interval": list(self.interval)}


@dataclass(frozen=True, eq=False)
class MembershipClaim:
    """An attack's scores for a pair's candidates.

    Attributes:
        attack: the attack's name.
        scores: scores of unlearned rows, then outsiders; a higher score means more certainly unlearned.
        threshold: rows with at least this score are called unlearned; chosen on shadows only.
        labels_gone: number of candidates whose label is not among the outputs of the queried model.
        notes: remarks for readers of the result.
    """

    attack: str
    scores: Array
    threshold: float
    labels_gone: int = 0
    notes: str = ""


@dataclass(frozen=True)
class Outcome:
    """A claim scored against the truth.

    Attributes:
        attack: the attack's name.
        knowledge: what the attacker knew.
        hit_rate: share of unlearned rows called unlearned. Meaningless without the false positive rate.
        false_positive_rate: share of outsiders called unlearned.
        auc: area under the ROC curve; 0.5 is guessing.
        interval: 95 % interval of the area.
        tpr_at: share of unlearned rows found at each false positive rate of `RATES`, whatever threshold that needs.
        unlearned: number of unlearned rows.
        outsiders: number of outsiders.
        labels_gone: number of candidates whose label is not among the outputs of the queried model.
        notes: remarks for readers of the result.
        comparison: comparison with the same attack on a model trained without the rows, if there is one.
        scores: score of each candidate, unlearned rows first.
    """

    attack: str
    knowledge: Knowledge
    hit_rate: float
    false_positive_rate: float
    auc: float
    interval: tuple[float, float]
    tpr_at: dict[float, float]
    unlearned: int
    outsiders: int
    labels_gone: int = 0
    notes: str = ""
    comparison: MembershipComparison | None = None
    scores: Array = field(default_factory=lambda: np.empty(0), repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; without scores."""
        values: dict[str, Any] = {"attack": self.attack, **vars(self.knowledge), **vars(self)}
        del values["knowledge"], values["scores"]
        values["interval"] = list(self.interval)
        values["tpr_at"] = {f"{rate:g}": tpr for rate, tpr in self.tpr_at.items()}
        values["comparison"] = None if self.comparison is None else self.comparison.to_dict()
        return values


def measure(claim: MembershipClaim, pair: ModelPair, knowledge: Knowledge) -> Outcome:
    """Score a claim about a pair.

    Raises:
        DataError: the claim is not about this pair's candidates.
    """
    if claim.scores.shape != pair.truth.shape or not np.isfinite(claim.scores).all():
        raise DataError(f"{claim.attack!r} gave {claim.scores.shape} scores for {len(pair.truth)} candidates.")
    hits, alarms = claim.scores[pair.truth], claim.scores[~pair.truth]
    return Outcome(
        attack=claim.attack,
        knowledge=knowledge,
        hit_rate=float((hits >= claim.threshold).mean()),
        false_positive_rate=float((alarms >= claim.threshold).mean()),
        auc=auc(hits, alarms),
        interval=auc_interval(hits, alarms),
        tpr_at={rate: tpr_at(hits, alarms, rate) for rate in RATES},
        unlearned=len(hits),
        outsiders=len(alarms),
        labels_gone=claim.labels_gone,
        notes="; ".join(filter(None, (claim.notes, _unlike(pair)))),
        scores=claim.scores,
    )


def _unlike(pair: ModelPair) -> str:
    """Return a note if labels alone separate many unlearned rows from outsiders, else an empty string."""
    mine, others = Counter(pair.unlearned.labels), Counter(pair.outsiders.labels)
    alone = (mine + others).total()
    for label in mine.keys() & others.keys():
        alone -= mine[label] + others[label]
    if alone <= _ALIKE * len(pair.truth):
        return ""
    return f"{alone} of {len(pair.truth)} candidates have a label that only unlearned rows or only outsiders have"


def against(outcome: Outcome, reference: Outcome) -> MembershipComparison:
    """Compare an outcome with that of the same attack on a reference, candidate by candidate.

    Equal is the goal, and less exposed is not better: over-forgetting is itself visible. The interval covers the draw
    of candidates. Two trainings from different seeds differ by more than the interval, so retrain the reference from
    the seed that the unlearning used, or compare several.

    Raises:
        DataError: the outcomes are of different attacks or candidates.
    """
    mine = (outcome.attack, outcome.unlearned, outcome.outsiders, len(outcome.scores))
    theirs = (reference.attack, reference.unlearned, reference.outsiders, len(reference.scores))
    cut = outcome.unlearned
    if mine != theirs or len(outcome.scores) != cut + outcome.outsiders:
        raise DataError(f"outcomes of different attacks or candidates cannot be compared: {mine} and {theirs}.")
    # both attacks see the same candidates, so DeLong's components are subtracted row by row: luck in the draw of easy
    # or hard candidates cancels out
    below, above = placements(outcome.scores[:cut], outcome.scores[cut:])
    reference_below, reference_above = placements(reference.scores[:cut], reference.scores[cut:])
    error = standard_error(below - reference_below, above - reference_above)
    difference = outcome.auc - reference.auc
    reach = Z * error
    if difference and not error:  # scores separate all rows, however few: see `auc_interval`
        reach = 1 - 0.025 ** (1 / min(outcome.unlearned, outcome.outsiders))
    low, high = max(-1.0, difference - reach), min(1.0, difference + reach)
    return MembershipComparison(outcome.auc, reference.auc, difference, (low, high), judged(low, high))


def judged(low: float, high: float) -> Verdict:
    """Return the verdict on an interval of a difference, see `MembershipComparison`.

    >>> judged(-0.01, 0.02), judged(0.01, 0.3), judged(-0.2, 0.1)
    ('equal', 'more', 'undecided')
    """
    if low >= -MARGIN and high <= MARGIN:
        return "equal"
    return "more" if low > 0 else "less" if high < 0 else "undecided"
