"""Claim (d): label expansion keeps 90 % of label privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from splitwiper_lab.attacks.suite import AS_SEEN, GUESS
from splitwiper_lab.evaluation.reproduction.checks import HOLDS, OPEN
from splitwiper_lab.evaluation.tradeoff import Point
from splitwiper_lab.pages.reproduction.claim import ClaimEvidence, PaperClaim, percents, seed_range, span
from splitwiper_lab.pages.reproduction.collected import Collected, Measured

GAMMA = 3
"""The expansion that the paper's figures apply to."""
_ATTACKS = {
    "kmeans": (
        ("elbow.perfect", "k-means, elbow method: grouped perfectly", 0.1, "at most 10\xa0%"),
        ("kmeans Q.perfect", "k-means, knowing Q: grouped perfectly", 0.3, "about 30\xa0%"),
    ),
    "birch": (
        ("birch.perfect", "BIRCH, knowing nothing: grouped perfectly", 0.0, "0\xa0%"),
        ("birch Q.perfect", "BIRCH, knowing Q: grouped perfectly", 0.0, "0\xa0%"),
    ),
}
"""By experiment: quantities, their descriptions, and the paper's figures."""


def hidden(collected: Collected) -> PaperClaim:
    """Judge claim (d): SplitWiper+ keeps 90 % of label privacy."""
    evidence: list[ClaimEvidence] = []
    for measured in collected.of("kmeans", "birch"):
        evidence += _clustered(measured)
    expanded: list[Point] = []
    if collected.tradeoff:
        expanded = [p for p in collected.tradeoff.points if p.setting.startswith(f"duplicate, γ = {GAMMA}")]
        source = collected.tradeoff.file
        if not evidence:  # the experiments have the same attack, over more seeds
            for point in expanded:
                evidence += _paper_attack(point, source)
        for point in expanded:
            evidence += _strongest(point, source)
    claim = PaperClaim(
        "d",
        "Masked labels stay hidden",
        f"With each label expanded into γ = {GAMMA} masked labels, a curious server finds out at most a tenth: "
        "k-means with the elbow method groups at most 10 % of the labels perfectly.",
        tuple(evidence),
        "An attack counts for the claim where it finds no more than the paper says, and half where that is so in some "
        "cells.",
    )
    return replace(claim, why="" if claim.verdict in (HOLDS, OPEN) else _why(expanded))


def _clustered(measured: Measured) -> list[ClaimEvidence]:
    experiment = measured.experiment
    evidence = []
    for name, says, goal, paper in _ATTACKS.get(experiment.id, ()):
        cells = []
        for condition, system in product(experiment.conditions, experiment.systems):
            cell = measured.spreads.get((condition.name, system.name), {}).get(name)
            if system.x == GAMMA and cell is not None and cell.mean is not None:
                cells.append(cell)
        if cells:
            number = "one cell" if len(cells) == 1 else f"{len(cells)} cells"
            shares = percents(cells)
            ours = f"{span(shares)} in {number}"
            # in all cells, in some, or in none
            reached = 1.0 if max(shares) <= 100 * goal else 0.5 if min(shares) <= 100 * goal else 0.0
            evidence.append(ClaimEvidence(says, ours, paper, reached, seed_range(cells), experiment.id))
    return evidence


def _paper_attack(point: Point, source: str) -> list[ClaimEvidence]:
    """Return evidence from the paper's own attack, if it was part of the trade-off's suite."""
    says = f"k-means, elbow method, {point.setting}: grouped perfectly"
    evidence = []
    for attack in point.attacks:
        share = attack["perfect"]
        if attack["attack"] == "code means, k-means, elbow" and share is not None:
            ours = f"{100 * share:.1f}\xa0%"
            evidence.append(ClaimEvidence(says, ours, "at most 10\xa0%", float(share <= 0.1), "1", source))
    return evidence


def _strongest(point: Point, source: str) -> list[ClaimEvidence]:
    """Return evidence from the strongest attack of the suite."""
    evidence = []
    for knows, goal, words, paper in (
        ("", 0.1, "knowing nothing", "at most 10\xa0%"),
        ("Q", 0.3, "knowing Q", "about 30\xa0%"),
    ):
        best = _best([point], knows)
        if best:
            share = float(best["sample_recovery"])
            ours = f"{100 * share:.1f}\xa0% ({best['attack']})"
            says = f"Strongest attack, {words}, {point.setting}: rows' labels recovered"
            evidence.append(ClaimEvidence(says, ours, paper, float(share <= goal), "1", source))
    return evidence


def _best(points: Sequence[Point], knows: str) -> Mapping[str, Any] | None:
    """Return the strongest attack with at most this side information."""
    attacks = []
    for point in points:
        for attack in point.attacks:
            # a baseline that does not attack says how much is known without one
            is_attack = attack["attack"] not in (AS_SEEN, GUESS)
            if is_attack and attack["knows"] in ("", knows) and attack["sample_recovery"] is not None:
                attacks.append(attack)
    return max(attacks, key=_recovery, default=None)


def _recovery(attack: Mapping[str, Any]) -> float:
    return float(attack["sample_recovery"])


def _why(points: Sequence[Point]) -> str:
    start = (
        "Copies of a row differ in their masked label and their noise only. The mean over a masked label's rows "
        "averages noise away, so masked labels of one label have nearly the same mean and can be grouped."
    )
    best = _best(points, "Q")
    if not best:
        return start
    return (
        f"{start} An attacker who knows the number of labels recovers {100 * _recovery(best):.1f}\xa0% of the "
        "rows' labels. The plot of privacy against utility below shows what other ways of hiding cost."
    )
