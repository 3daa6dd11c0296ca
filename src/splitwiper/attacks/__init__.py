"""Attacks by an honest-but-curious server: what uploads, codes and its own model give away of the true labels."""

from splitwiper.attacks.evidence import Evidence
from splitwiper.attacks.finding import Finding, Result
from splitwiper.attacks.measuring import measure
from splitwiper.attacks.reconstruction import Pictures
from splitwiper.attacks.snapshot import snapshot
from splitwiper.attacks.suite import suite
from splitwiper.attacks.truth import Truth, inputs_of
from splitwiper.attacks.view import Seen, ServerView

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
