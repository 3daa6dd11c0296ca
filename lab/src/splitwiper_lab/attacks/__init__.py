"""Attacks by an honest-but-curious server: what uploads, codes and its own model reveal about the true labels."""

from splitwiper_lab.attacks.evidence import Evidence
from splitwiper_lab.attacks.finding import AttackFinding, AttackResult
from splitwiper_lab.attacks.measuring import measure
from splitwiper_lab.attacks.outside import load_attack
from splitwiper_lab.attacks.reconstruction import Pictures
from splitwiper_lab.attacks.suite import suite
from splitwiper_lab.attacks.truth import Truth, inputs_of
from splitwiper_lab.attacks.view import SeenShard, ServerView, snapshot

__all__ = [
    "AttackFinding",
    "AttackResult",
    "Evidence",
    "Pictures",
    "SeenShard",
    "ServerView",
    "Truth",
    "inputs_of",
    "load_attack",
    "measure",
    "snapshot",
    "suite",
]
