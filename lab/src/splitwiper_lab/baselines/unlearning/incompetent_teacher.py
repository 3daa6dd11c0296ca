"""Bad teaching (Chundawat et al. 2023): an incompetent teacher for the rows to be forgotten.

The student follows probabilities, at a temperature, of the trained network on a part of the rows that stay, and of a
network that learned nothing on rows to forget. Both kinds share a batch and have equal weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from splitwiper.config.settings import bounded
from splitwiper.seeding import Stream
from splitwiper_lab.baselines.framework import Trained
from splitwiper_lab.baselines.objectives import Objective, needed
from splitwiper_lab.baselines.problem import Forgetting
from splitwiper_lab.baselines.schedules import Portion
from splitwiper_lab.baselines.unlearning.method import everything
from splitwiper_lab.baselines.unlearning.teaching import Teaching


@dataclass(frozen=True, kw_only=True)
class IncompetentTeacher(Teaching):
    """Kullback-Leibler distance from the right teacher's probabilities, row by row.

    Attributes:
        share: of the rows that stay, the part that is looked at.
        temperature: of all probabilities.
    """

    share: float = 0.3
    temperature: float = 1.0

    name: ClassVar[str] = "incompetent-teacher"

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "share", 0, strict=True, high=1)
        bounded(self, "temperature", 0, strict=True)

    def portions(self, trained: Trained, forgetting: Forgetting) -> dict[str, Portion]:
        """Return a part of the rows that stay, and all rows to forget."""
        chosen = {}
        for name, portion in everything(trained, forgetting).items():
            order = Stream(trained.problem.config.seed, "incompetent-teacher", name).permutation(len(portion.kept))
            part = Portion(portion.kept[order[: round(self.share * len(order))]], portion.gone)
            if len(part):
                chosen[name] = part
        return chosen

    def objective(self, chosen: Mapping[str, Portion]) -> Objective:
        """Return the objective: follow the teacher of each row."""

        def loss(logits: Tensor, codes: Tensor | None, gone: Tensor, taught: Tensor | None) -> Tensor:
            # KL(teacher ‖ student), per row; logarithms throughout, as a temperature below 1 makes probabilities tiny
            ours = functional.log_softmax(logits / self.temperature, dim=1)
            theirs = functional.log_softmax(needed(taught) / self.temperature, dim=1)
            return functional.kl_div(ours, theirs, log_target=True, reduction="batchmean")

        return Objective(loss, labels=False, marks=True)
