"""How split learning forgets without isolation (Section 2.2): one file per way, named after it."""

from splitwiper.baselines.unlearning.distillation import Distillation
from splitwiper.baselines.unlearning.fine_tuning import FineTuning
from splitwiper.baselines.unlearning.gradient_ascent import GradientAscent
from splitwiper.baselines.unlearning.incompetent_teacher import IncompetentTeacher
from splitwiper.baselines.unlearning.method import Method
from splitwiper.baselines.unlearning.retraining import Retraining

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
