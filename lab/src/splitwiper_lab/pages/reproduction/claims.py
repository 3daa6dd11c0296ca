"""The paper's four claims, judged by the measurements."""

from __future__ import annotations

from splitwiper_lab.pages.reproduction.claim import PaperClaim
from splitwiper_lab.pages.reproduction.collected import Collected
from splitwiper_lab.pages.reproduction.costs import cheaper
from splitwiper_lab.pages.reproduction.forgetting import forgotten, retained
from splitwiper_lab.pages.reproduction.hiding import hidden


def claims(collected: Collected) -> tuple[PaperClaim, ...]:
    """Return all four claims, in the paper's order. No verdict is typed: each follows from its evidence."""
    return forgotten(collected), retained(collected), cheaper(collected), hidden(collected)
