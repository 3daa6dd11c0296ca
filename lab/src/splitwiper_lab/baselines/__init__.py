"""The systems that SplitWiper is compared with, on the same data, networks and meters.

==================  =================================================================================================
``vanilla``         split learning as it is usually meant; ``u_shaped`` keeps labels at clients; ``splitfed_v1`` and
                    ``splitfed_v2`` average client halves
``unlearning``      how these forget: retraining, fine-tuning, gradient ascent, distillation, incompetent teacher
``sisa``            sharded, isolated, sliced, aggregated training in one place, of the ``whole`` network
``problem``         what every system gets; ``starting`` where client halves start from; ``network`` all parts of one
``client``          what clients compute, ``server`` what the server does, ``party`` what both do; ``channel`` what
                    passes between them; ``aggregation`` Φ; ``objectives`` what a batch is trained towards
``framework``       settings and results; ``training`` epochs and averages; ``schedules`` who takes part in a batch
``meters``          what it all costs
==================  =================================================================================================

Defences of labels that are compared with SplitWiper+ belong here too, in a folder of their own beside ``unlearning``.
"""

from splitwiper_lab.baselines.aggregation import Phi
from splitwiper_lab.baselines.framework import Framework, Trained
from splitwiper_lab.baselines.meters import Cost
from splitwiper_lab.baselines.network import Network
from splitwiper_lab.baselines.problem import Forgetting, Problem
from splitwiper_lab.baselines.splitfed_v1 import SplitFedV1
from splitwiper_lab.baselines.splitfed_v2 import SplitFedV2
from splitwiper_lab.baselines.u_shaped import UShaped
from splitwiper_lab.baselines.vanilla import Vanilla

FRAMEWORKS: dict[str, type[Framework]] = {kind.name: kind for kind in (Vanilla, UShaped, SplitFedV1, SplitFedV2)}
"""Split-learning frameworks by name."""

__all__ = [
    "FRAMEWORKS",
    "Cost",
    "Forgetting",
    "Framework",
    "Network",
    "Phi",
    "Problem",
    "SplitFedV1",
    "SplitFedV2",
    "Trained",
    "UShaped",
    "Vanilla",
]
