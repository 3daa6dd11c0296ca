"""What a membership attack is worth: hits and false alarms at its own threshold, and whatever the threshold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from splitwiper.errors import DataError
from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.membership.knowledge import Knowledge
from splitwiper_lab.attacks.membership.pairs import Pair
from splitwiper_lab.attacks.membership.roc import auc, auc_interval, tpr_at

if TYPE_CHECKING:
    from splitwiper_lab.attacks.membership.comparing import Comparison

RATES = (0.01, 0.1)
"""False positive rates at which hits are reported."""
_ALIKE = 0.1
"""Share of candidates that may have a label of one side only, before an outcome notes it."""


@dataclass(frozen=True, eq=False)
class Claim:
    """What an attack says of a pair's candidates.

    Attributes:
        attack: its name.
        scores: of unlearned rows, then outsiders; the higher, the surer it is that a row was unlearned.
        threshold: rows with this score or a higher one are called unlearned; chosen on shadows alone.
        labels_gone: candidates whose label is not among the outputs of the model that was asked.
        notes: what to know about it.
    """

    attack: str
    scores: Array
    threshold: float
    labels_gone: int = 0
    notes: str = ""


@dataclass(frozen=True)
class Outcome:
    """A claim, measured.

    Attributes:
        attack: its name.
        knowledge: what the attacker knew.
        hit_rate: share of unlearned rows called unlearned. Means nothing without the next.
        false_positive_rate: share of outsiders called unlearned.
        auc: area under the ROC curve; 0.5 is guessing.
        interval: of the area, at 95 %.
        tpr_at: share of unlearned rows found at the false positive rates `RATES`, wherever the threshold must be.
        unlearned: how many rows were.
        outsiders: how many rows were not.
        labels_gone: candidates whose label is not among the outputs of the model that was asked.
        notes: what to know about it.
        comparison: with the same attack on a model that was trained without the rows, where there is one.
        scores: per candidate, unlearned rows first.
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
    comparison: Comparison | None = None
    scores: Array = field(default_factory=lambda: np.empty(0), repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; without scores."""
        return {
            "attack": self.attack,
            "labels": self.knowledge.labels,
            "tasks": self.knowledge.tasks,
            "hit_rate": self.hit_rate,
            "false_positive_rate": self.false_positive_rate,
            "auc": self.auc,
            "interval": list(self.interval),
            "tpr_at": {f"{rate:g}": tpr for rate, tpr in self.tpr_at.items()},
            "unlearned": self.unlearned,
            "outsiders": self.outsiders,
            "labels_gone": self.labels_gone,
            "notes": self.notes,
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
        }


def measure(claim: Claim, pair: Pair, knowledge: Knowledge) -> Outcome:
    """What a claim about a pair is worth.

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
        notes="; ".join(note for note in (claim.notes, _unlike(pair)) if note),
        scores=claim.scores,
    )


def _unlike(pair: Pair) -> str:
    """A note where labels alone tell many unlearned rows from outsiders."""
    sides = [Counter(pair.unlearned.labels), Counter(pair.outsiders.labels)]
    alone = sum(n for one, other in (sides, sides[::-1]) for label, n in one.items() if label not in other)
    if alone <= _ALIKE * len(pair.truth):
        return ""
    return f"{alone} of {len(pair.truth)} candidates have a label that only unlearned rows or only outsiders have"
