"""Fine-tuning on the rows that stay, so that the model may forget the others over time (Section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from splitwiper_lab.baselines.framework import Trained
from splitwiper_lab.baselines.problem import Forgetting
from splitwiper_lab.baselines.schedules import Portion
from splitwiper_lab.baselines.unlearning.method import Adjusting, everything


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
