"""Membership inference against unlearning: does a model, or its change, tell which rows it had to forget?

An attacker who may ask a model before and after an unlearning wants to tell the unlearned rows from rows that were
never in training. It learns how from shadows, pairs of models that it trained on rows of its own. What counts is not
how little an attack finds, but that it finds as much as in a model that never saw the rows: see `Comparison`.

| attack | file | sees |
|---|---|---|
| two models | `two_model` | posteriors before and after |
| labels only | `label_only` | the winning label before and after, of rows with noise on them |
| loss before, loss after | `loss` | the posteriors of one model |
"""

from splitwiper_lab.attacks.membership.comparing import Comparison, against, judged
from splitwiper_lab.attacks.membership.knowledge import Knowledge, refuse_overlap
from splitwiper_lab.attacks.membership.label_only import label_only
from splitwiper_lab.attacks.membership.loss import loss
from splitwiper_lab.attacks.membership.measuring import Claim, Outcome, measure
from splitwiper_lab.attacks.membership.pairs import Answers, Model, Pair
from splitwiper_lab.attacks.membership.sample import Inputs, Sample
from splitwiper_lab.attacks.membership.shadows import Forget, Trainer, shadow_pairs
from splitwiper_lab.attacks.membership.suite import Judges, membership
from splitwiper_lab.attacks.membership.two_model import two_model

__all__ = [
    "Answers",
    "Claim",
    "Comparison",
    "Forget",
    "Inputs",
    "Judges",
    "Knowledge",
    "Model",
    "Outcome",
    "Pair",
    "Sample",
    "Trainer",
    "against",
    "judged",
    "label_only",
    "loss",
    "measure",
    "membership",
    "refuse_overlap",
    "shadow_pairs",
    "two_model",
]
