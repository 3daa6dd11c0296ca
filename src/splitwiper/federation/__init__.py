"""The in-process federation: clients, server and the link between them on one machine, in one folder."""

from splitwiper.checks import Check, Verification
from splitwiper.federation.evaluate import ClientScore, Evaluation, Score
from splitwiper.federation.federation import Federation
from splitwiper.federation.reconcile import Learned
from splitwiper.federation.status import RunStatus, status

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
