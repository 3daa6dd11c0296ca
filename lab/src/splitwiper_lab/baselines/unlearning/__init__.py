"""How split learning forgets without isolation (Section 2.2): one file per way, named after it."""

from splitwiper_lab.baselines.unlearning.distillation import Distillation
from splitwiper_lab.baselines.unlearning.fine_tuning import FineTuning
from splitwiper_lab.baselines.unlearning.gradient_ascent import GradientAscent
from splitwiper_lab.baselines.unlearning.incompetent_teacher import IncompetentTeacher
from splitwiper_lab.baselines.unlearning.method import Method
from splitwiper_lab.baselines.unlearning.retraining import Retraining

METHODS: dict[str, type[Method]] = {
    kind.name: kind for kind in (Retraining, FineTuning, GradientAscent, Distillation, IncompetentTeacher)
}
"""Ways to unlearn by name."""

__all__ = [
    "METHODS",
    "Distillation",
    "FineTuning",
    "GradientAscent",
    "IncompetentTeacher",
    "Method",
    "Retraining",
]
