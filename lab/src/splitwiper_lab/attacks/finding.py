"""What an attack claims, and what the claim turned out to be worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.view import Place


@dataclass(frozen=True)
class Finding:
    """What an attack claims.

    Attributes:
        attack: its name.
        groups: codes that it says belong together; None where it says nothing of codes.
        rows: per upload, the cluster of each row; -1 for rows it did not look at. None where codes say it all.
        labels_estimated: how many labels it says there are.
        knows: what it was told beyond what a server has: "" for nothing, "Q" the number of labels, "aux" some rows'
            labels or inputs.
        vanished: per upload that was replaced, how many rows of each code are gone from the next.
        gone: per upload that was replaced, which of its rows are gone.
        scores: measures of its own.
        notes: what to know about it.
    """

    attack: str
    groups: tuple[frozenset[int], ...] | None = None
    rows: Mapping[Place, Array] | None = None
    labels_estimated: int | None = None
    knows: str = ""
    vanished: Mapping[Place, Mapping[int, int]] | None = None
    gone: Mapping[Place, Array] | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    notes: str = ""


@dataclass(frozen=True)
class Result:
    """A claim, measured against the truth. What does not apply is None.

    Attributes:
        attack: its name.
        perfect: share of labels whose codes are exactly one group (the paper's perfect clustering accuracy).
        inclusive: share of labels whose codes all lie in one group, whatever else does (inclusive accuracy).
        pair_f1: F1 score of "these two codes belong together", over all pairs of codes.
        sample_recovery: share of rows whose cluster stands for their true label, under the best one-to-one assignment.
        labels_estimated: how many labels the attack says there are.
        labels_error: that, less the true number.
        knows: what the attack was told beyond what a server has.
        seconds: what it took, preparation it shares with others not included.
        scores: measures of its own, such as precision and recall of what was forgotten.
        notes: what to know about it.
    """

    attack: str
    perfect: float | None = None
    inclusive: float | None = None
    pair_f1: float | None = None
    sample_recovery: float | None = None
    labels_estimated: int | None = None
    labels_error: int | None = None
    knows: str = ""
    seconds: float = 0.0
    scores: Mapping[str, float] = field(default_factory=dict)
    notes: str = ""

    @property
    def strength(self) -> float:
        """By what attacks are ordered: rows recovered, else labels, else nothing."""
        found = (self.sample_recovery, self.perfect, self.pair_f1)
        return next((value for value in found if value is not None), -1.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "attack": self.attack,
            "perfect": self.perfect,
            "inclusive": self.inclusive,
            "pair_f1": self.pair_f1,
            "sample_recovery": self.sample_recovery,
            "labels_estimated": self.labels_estimated,
            "labels_error": self.labels_error,
            "knows": self.knows,
            "seconds": self.seconds,
            "scores": dict(self.scores),
            "notes": self.notes,
        }
