"""Distillation with a preserver and a destroyer (Section 2.2): L = α L_u + (1 − α) L_r.

On rows that stay, the student should answer as the trained network did; on rows to forget, as a network that learned
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from splitwiper.config.settings import bounded
from splitwiper_lab.baselines.objectives import Objective, needed
from splitwiper_lab.baselines.schedules import Portion
from splitwiper_lab.baselines.unlearning.method import balanced
from splitwiper_lab.baselines.unlearning.teaching import Teaching


@dataclass(frozen=True, kw_only=True)
class Distillation(Teaching):
    """The mean squared distance of outputs from the preserver's and the destroyer's.

    Attributes:
        alpha: the weight of forgetting.
    """

    alpha: float = 0.5

    name: ClassVar[str] = "distillation"

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "alpha", 0, high=1)

    def objective(self, chosen: Mapping[str, Portion]) -> Objective:
        """Return the objective: follow the destroyer on rows to forget and the preserver on all others."""
        stay, go = balanced(chosen, kept=1 - self.alpha, gone=self.alpha)

        def loss(logits: Tensor, codes: Tensor | None, gone: Tensor, taught: Tensor | None) -> Tensor:
            each = (logits - needed(taught)).square().mean(dim=1)
            return torch.where(gone, go * each, stay * each).mean()

        return Objective(loss, labels=False, marks=True)
