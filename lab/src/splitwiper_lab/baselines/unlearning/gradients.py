"""Fine-tuning on the rows that stay, and gradient ascent on the loss of rows to forget (Section 2.2).

Fine-tuning lets the model forget the other rows over time. For ascent, the paper moves along ∇L − ∇L_r, L over all rows
and L_r over those that stay. With n_u of n rows to forget that is (n_u / n) (∇L_u − ∇L_r): the loss of those rows
increases and that of all others decreases. So every client takes part. With ``retain = 0`` only the first term is left,
the requester suffices, and nothing protects the others' accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from splitwiper.config.settings import bounded
from splitwiper_lab.baselines.framework import Trained
from splitwiper_lab.baselines.party import Objective, needed
from splitwiper_lab.baselines.problem import Forgetting
from splitwiper_lab.baselines.schedules import Portion
from splitwiper_lab.baselines.unlearning.method import Adjusting, balanced, everything


@dataclass(frozen=True, kw_only=True)
class FineTuning(Adjusting):
    """W ← W − η ∇L_r(W), over the rows that stay."""

    name: ClassVar[str] = "fine-tuning"

    def portions(self, trained: Trained, forgetting: Forgetting) -> dict[str, Portion]:
        """Return the rows that stay."""
        stays = {}
        for name, portion in everything(trained, forgetting).items():
            if len(portion.kept):
                stays[name] = Portion(portion.kept, portion.gone[:0])
        return stays


@dataclass(frozen=True, kw_only=True)
class GradientAscent(Adjusting):
    """Descend on ``retain`` · L_r − L_u, each a mean over its rows.

    Attributes:
        retain: the weight of rows that stay; 0 ignores them.

    Notes:
        The loss of a row to forget is capped at ln(2 Q): there its label is half as likely as by chance, and ascending
        further would only destroy weights. The server learns which rows are to be forgotten.
    """

    retain: float = 1.0

    name: ClassVar[str] = "gradient-ascent"

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "retain", 0)

    def portions(self, trained: Trained, forgetting: Forgetting) -> dict[str, Portion]:
        """Return all rows, or only the rows to forget if ``retain`` is 0."""
        every = everything(trained, forgetting)
        if self.retain:
            return every
        mine = every[forgetting.client]
        return {forgetting.client: Portion(mine.kept[:0], mine.gone)}

    def objective(self, chosen: Mapping[str, Portion]) -> Objective:
        """Return the objective: ascend on rows to forget, descend on all others."""
        stay, go = balanced(chosen, kept=self.retain, gone=-1.0)

        def loss(logits: Tensor, codes: Tensor | None, gone: Tensor, taught: Tensor | None) -> Tensor:
            each = functional.cross_entropy(logits, needed(codes), reduction="none")
            # clamped rows have no gradient, so a row that is forgotten enough stops pulling
            ceiling = math.log(2 * logits.shape[1])
            return torch.where(gone, go * each.clamp(max=ceiling), stay * each).mean()

        return Objective(loss, marks=True)
