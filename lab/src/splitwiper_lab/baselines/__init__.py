"""The systems that SplitWiper is compared with, on the same data, networks and meters.

==================  =================================================================================================
``vanilla``         conventional split learning; ``u_shaped`` keeps labels at clients; ``splitfed``, in two versions,
                    averages client halves
``unlearning``      how these forget: retraining, fine-tuning, gradient ascent, distillation, incompetent teacher
``sisa``            sharded, isolated, sliced, aggregated training in one place, of the ``whole`` network
``problem``         the input of every system; ``starting`` initial client halves; ``network`` all parts of a network
``client``          the client's computation, ``server`` the server's, ``party`` what both share, and the objective
                    of a batch; ``channel`` messages between them; ``aggregation`` Φ
``framework``       settings and results; ``training`` epochs and averages; ``schedules`` which clients join a batch
``meters``          the costs
``outside``         baselines from other packages
==================  =================================================================================================

Label defences that are compared with SplitWiper+ belong here too, in a folder next to ``unlearning``.
"""

from splitwiper_lab.baselines.aggregation import Phi
from splitwiper_lab.baselines.framework import Framework, Trained
from splitwiper_lab.baselines.meters import Cost
from splitwiper_lab.baselines.network import Network
from splitwiper_lab.baselines.outside import Baseline, BaselineCosts, LearnedBaseline
from splitwiper_lab.baselines.problem import Forgetting, Problem
from splitwiper_lab.baselines.splitfed import SplitFedV1, SplitFedV2
from splitwiper_lab.baselines.u_shaped import UShaped
from splitwiper_lab.baselines.vanilla import Vanilla

FRAMEWORKS: dict[str, type[Framework]] = {kind.name: kind for kind in (Vanilla, UShaped, SplitFedV1, SplitFedV2)}
"""Split-learning frameworks by name."""

__all__ = [
    "FRAMEWORKS",
    "Baseline",
    "BaselineCosts",
    "Cost",
    "Forgetting",
    "Framework",
    "LearnedBaseline",
    "Network",
    "Phi",
    "Problem",
    "SplitFedV1",
    "SplitFedV2",
    "Trained",
    "UShaped",
    "Vanilla",
]
