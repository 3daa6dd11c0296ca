"""Unlearning methods for split learning without isolation (Section 2.2)."""

from splitwiper_lab.baselines.unlearning.gradients import FineTuning, GradientAscent
from splitwiper_lab.baselines.unlearning.method import Method
from splitwiper_lab.baselines.unlearning.retraining import Retraining
from splitwiper_lab.baselines.unlearning.teaching import Distillation, IncompetentTeacher

METHODS: dict[str, type[Method]] = {
    kind.name: kind for kind in (Retraining, FineTuning, GradientAscent, Distillation, IncompetentTeacher)
}
"""Unlearning methods by name."""

__all__ = [
    "METHODS",
    "Distillation",
    "FineTuning",
    "GradientAscent",
    "IncompetentTeacher",
    "Method",
    "Retraining",
]
