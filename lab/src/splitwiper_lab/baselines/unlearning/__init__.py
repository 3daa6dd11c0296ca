"""Unlearning methods for split learning without isolation (Section 2.2), one per file, named after it."""

from splitwiper_lab.baselines.unlearning.distillation import Distillation
from splitwiper_lab.baselines.unlearning.fine_tuning import FineTuning
from splitwiper_lab.baselines.unlearning.gradient_ascent import GradientAscent
from splitwiper_lab.baselines.unlearning.incompetent_teacher import IncompetentTeacher
from splitwiper_lab.baselines.unlearning.method import Method
from splitwiper_lab.baselines.unlearning.retraining import Retraining

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
