"""The page of all results: the paper's claims, every experiment, and how to measure it again."""

from splitwiper.report.reproduction.claim import Claim, Evidence
from splitwiper.report.reproduction.claims import claims
from splitwiper.report.reproduction.collected import (
    Beside,
    Collected,
    Measured,
    read_all,
    read_comparison,
    read_tradeoff,
)
from splitwiper.report.reproduction.page import render
from splitwiper.report.reproduction.readme import readme

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
