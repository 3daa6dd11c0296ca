"""The page of all results: the paper's claims, every experiment, and how to measure it again."""

from splitwiper_lab.pages.reproduction.claim import Claim, Evidence
from splitwiper_lab.pages.reproduction.claims import claims
from splitwiper_lab.pages.reproduction.collected import (
    Beside,
    Collected,
    Measured,
    read_all,
    read_comparison,
    read_tradeoff,
)
from splitwiper_lab.pages.reproduction.page import render
from splitwiper_lab.pages.reproduction.readme import readme

__all__ = [
    "Beside",
    "Claim",
    "Collected",
    "Evidence",
    "Measured",
    "claims",
    "read_all",
    "read_comparison",
    "read_tradeoff",
    "readme",
    "render",
]
