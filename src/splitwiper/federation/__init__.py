"""The in-process federation: clients, server and the link between them on one machine, in one folder."""

from splitwiper.federation.evaluate import ClientScore, Evaluation, Score
from splitwiper.federation.federation import Federation
from splitwiper.federation.reconcile import Learned
from splitwiper.federation.status import RunStatus, status
from splitwiper.federation.verify import Check, Verification

__all__ = [
    "Check",
    "ClientScore",
    "Evaluation",
    "Federation",
    "Learned",
    "RunStatus",
    "Score",
    "Verification",
    "status",
]
