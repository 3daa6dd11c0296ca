"""Fine-tuning on the rows that stay, in the hope that the others fade (Section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from splitwiper.baselines.framework import Trained
from splitwiper.baselines.network import Network
from splitwiper.baselines.problem import Forgetting
from splitwiper.baselines.training import Work
from splitwiper.baselines.unlearning.method import Adjusting, retained


@dataclass(frozen=True, kw_only=True)
class FineTuning(Adjusting):
    """W ← W − η ∇L_r(W), over the rows that stay."""

    name: ClassVar[str] = "fine-tuning"

    def needs(self, trained: Trained, forgetting: Forgetting) -> tuple[str, ...]:
        """Everybody who has rows left."""
        return tuple(retained(trained, forgetting))

    def work(self, trained: Trained, forgetting: Forgetting, network: Network) -> Work:
        """Go on learning, without the rows to be forgotten."""
        return Work(
            trained.framework,
            trained.problem,
            network,
            retained(trained, forgetting),
            purpose=self.name,
            recipe=self.recipe(trained),
        )
