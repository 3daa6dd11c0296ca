"""The page of all results: the paper's claims, every experiment, and how to reproduce it."""

from splitwiper_lab.pages.reproduction.collected import Collected, Measured, read_all, read_comparison, read_tradeoff
from splitwiper_lab.pages.reproduction.page import claims, render
from splitwiper_lab.pages.reproduction.readme import readme

__all__ = ["Collected", "Measured", "claims", "read_all", "read_comparison", "read_tradeoff", "readme", "render"]
