"""What an attack claims, and how well the claim matches the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.view import Place


@dataclass(frozen=True)
class AttackFinding:
    """The claim of one attack.

    Attributes:
        attack: the attack's name.
        groups: codes claimed to belong together; None if the attack makes no claim about codes.
        rows: per upload, the cluster of each row; -1 for rows the attack skipped. None if the groups say everything.
        labels_estimated: the number of labels that the attack estimates.
        knows: side information beyond the server's view: "" for none, "Q" the number of labels, "aux" some rows' labels
            or inputs.
        vanished: per replaced upload, how many rows of each code are missing from the next one.
        gone: per replaced upload, a mask of the rows that are missing from the next one.
        scores: further measures, specific to the attack.
        notes: remarks for readers of the result.
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
class AttackResult:
    """An attack's claim, scored against the truth. Scores that do not apply are None.

    Attributes:
        attack: the attack's name.
        perfect: share of labels whose codes are exactly one group (the paper's perfect clustering accuracy).
        inclusive: share of labels whose codes are all in one group, with or without others (inclusive accuracy).
        pair_f1: F1 score of "these two codes belong together", over all pairs of codes.
        sample_recovery: share of rows whose cluster stands for their true label, under the best one-to-one assignment.
        labels_estimated: the number of labels that the attack estimates.
        labels_error: that estimate minus the true number.
        knows: side information beyond the server's view, see `AttackFinding`.
        seconds: the attack's own time, without preparation that it shares with other attacks.
        scores: further measures, such as precision and recall of forgotten rows.
        notes: remarks for readers of the result.
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
        """Sort key of attacks: share of rows recovered, or of labels, or F1 over pairs; -1 without any."""
        for score in (self.sample_recovery, self.perfect, self.pair_f1):
            if score is not None:
                return score
        return -1.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**vars(self), "scores": dict(self.scores)}
