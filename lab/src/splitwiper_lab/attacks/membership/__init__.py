"""Membership inference against unlearning: does a model, or its change, reveal which rows it had to forget?

An attacker who can query a model before and after an unlearning wants to distinguish the unlearned rows from rows that
were never in training. It learns from shadows: pairs of models that it trained on its own rows. The goal is not that
an attack finds little, but that it finds as much as in a model that never saw the rows: see `MembershipComparison`.

| attack | file | sees |
|---|---|---|
| two models | `two_model` | posteriors before and after |
| labels only | `label_only` | the winning label before and after, of rows with noise on them |
| loss before, loss after | `loss` | the posteriors of one model |
"""

from splitwiper_lab.attacks.membership.label_only import label_only
from splitwiper_lab.attacks.membership.loss import loss
from splitwiper_lab.attacks.membership.measuring import (
    MembershipClaim,
    MembershipComparison,
    Outcome,
    against,
    judged,
    measure,
)
from splitwiper_lab.attacks.membership.pairs import Answers, Knowledge, Model, ModelPair, refuse_overlap
from splitwiper_lab.attacks.membership.sample import Inputs, Sample
from splitwiper_lab.attacks.membership.shadows import Forget, Trainer, shadow_pairs
from splitwiper_lab.attacks.membership.suite import Judges
from splitwiper_lab.attacks.membership.two_model import two_model

__all__ = [
    "Answers",
    "Forget",
    "Inputs",
    "Judges",
    "Knowledge",
    "MembershipClaim",
    "MembershipComparison",
    "Model",
    "ModelPair",
    "Outcome",
    "Sample",
    "Trainer",
    "against",
    "judged",
    "label_only",
    "loss",
    "measure",
    "refuse_overlap",
    "shadow_pairs",
    "two_model",
]
