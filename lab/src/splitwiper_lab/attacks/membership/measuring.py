"""Score membership attacks: hits and false alarms at the attack's own threshold, and over all thresholds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from splitwiper.errors import DataError
from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.membership.knowledge import Knowledge
from splitwiper_lab.attacks.membership.pairs import ModelPair
from splitwiper_lab.attacks.membership.roc import auc, auc_interval, tpr_at

if TYPE_CHECKING:
    from splitwiper_lab.attacks.membership.comparing import MembershipComparison

RATES = (0.01, 0.1)
"""False positive rates at which hits are reported."""
_ALIKE = 0.1
"""Share of candidates whose label may occur on one side only before an outcome notes it."""


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
