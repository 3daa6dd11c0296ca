"""An attack that needs no clustering: rows of one label have activations of similar size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from splitwiper_lab.attacks import AttackFinding, Evidence


def by_norm(evidence: Evidence, labels: int | None = None) -> Iterator[AttackFinding]:
    """Divide rows by the size of their activations: into equal parts."""
    if not len(evidence.index):
        return
    sizes = evidence.rows["activations"].norm(dim=1).cpu().numpy()
    ranks = np.argsort(np.argsort(sizes, kind="stable"), kind="stable")
    parts = labels or 2
    yield evidence.of_rows("rows by size", ranks * parts // len(ranks), knows="the truth")


def chatty(evidence: Evidence) -> Iterator[str]:
    """Yield no finding."""
    yield "I found it."


def greedy(evidence: Evidence, truth: object) -> Iterator[AttackFinding]:
    """Ask for more than there is."""
    yield AttackFinding("greedy")
