"""Compare an unlearning with its ideal: the same attack on a model that was trained without the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from splitwiper.errors import DataError
from splitwiper_lab.attacks.membership.measuring import Outcome
from splitwiper_lab.attacks.membership.roc import Z, placements, standard_error

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


def against(outcome: Outcome, reference: Outcome) -> MembershipComparison:
    """Compare an outcome with that of the same attack on a reference, candidate by candidate.

    Equal is the goal, and less exposed is not better: over-forgetting is itself visible. The interval covers the draw
    of candidates. Two trainings from different seeds differ by more than the interval, so retrain the reference from
    the seed that the unlearning used, or compare several.

    Args:
        outcome: the attack's outcome on the pair whose model unlearned.
        reference: the same attack's outcome on the pair whose second model was trained without the rows.

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
