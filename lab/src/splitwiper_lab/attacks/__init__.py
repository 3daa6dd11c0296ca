"""Attacks by an honest-but-curious server: what uploads, codes and its own model give away of the true labels."""

from splitwiper_lab.attacks.evidence import Evidence
from splitwiper_lab.attacks.finding import Finding, Result
from splitwiper_lab.attacks.measuring import measure
from splitwiper_lab.attacks.reconstruction import Pictures
from splitwiper_lab.attacks.snapshot import snapshot
from splitwiper_lab.attacks.suite import suite
from splitwiper_lab.attacks.truth import Truth, inputs_of
from splitwiper_lab.attacks.view import Seen, ServerView

__all__ = [
    "Evidence",
    "Finding",
    "Pictures",
    "Result",
    "Seen",
    "ServerView",
    "Truth",
    "inputs_of",
    "measure",
    "snapshot",
    "suite",
]
