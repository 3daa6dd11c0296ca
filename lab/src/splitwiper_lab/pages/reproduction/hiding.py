"""Claim (d): label expansion keeps 90 % of label privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from splitwiper_lab.attacks.suite import AS_SEEN, GUESS
from splitwiper_lab.evaluation.comparison import SeedSpread
from splitwiper_lab.evaluation.reproduction.outcomes import over_seeds
from splitwiper_lab.evaluation.tradeoff import Point
from splitwiper_lab.pages.reproduction.claim import HOLDS, OPEN, ClaimEvidence, PaperClaim, seeds_of, span
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
    found: list[ClaimEvidence] = []
    for measured in collected.of("kmeans", "birch"):
        found += _clustered(measured)
    points: Sequence[Point] = collected.tradeoff.points if collected.tradeoff else ()
    expanded = [p for p in points if p.setting.startswith(f"duplicate, γ = {GAMMA}")]
    if collected.tradeoff:
        source = collected.tradeoff.file
        if not found:
            for point in expanded:
                found += _paper_attack(point, source)
        for point in expanded:
            found += _strongest(point, source)
    claim = PaperClaim(
        "d",
        "Masked labels stay hidden",
        f"With each label expanded into γ = {GAMMA} masked labels, a curious server finds out at most a tenth: "
        "k-means with the elbow method groups at most 10 % of the labels perfectly.",
        tuple(found),
        "An attack counts for the claim where it finds no more than the paper says, and half where that is so in some "
        "cells.",
    )
    return replace(claim, why="" if claim.verdict in (HOLDS, OPEN) else _why(expanded))


def _clustered(measured: Measured) -> list[ClaimEvidence]:
    experiment = measured.experiment
    values = over_seeds(experiment, measured.results)
    systems = [s.name for s in experiment.systems if s.x == GAMMA]
    out = []
    for name, says, goal, paper in _ATTACKS.get(experiment.id, ()):
        shares = []
        for (_, system), quantities in values.items():
            if system in systems and name in quantities and quantities[name].mean is not None:
                shares.append(quantities[name])
        if shares:
            seeds = seeds_of([range(cell.count) for cell in shares])
            ours = f"{span([100 * (cell.mean or 0.0) for cell in shares])} in {_many(shares)}"
            out.append(ClaimEvidence(says, ours, paper, _within(shares, goal), seeds, experiment.id))
    return out


def _many(cells: Sequence[SeedSpread]) -> str:
    return "one cell" if len(cells) == 1 else f"{len(cells)} cells"


def _within(shares: Sequence[SeedSpread], goal: float) -> float:
    kept = [(share.mean or 0.0) <= goal for share in shares]
    return 1.0 if all(kept) else 0.5 if any(kept) else 0.0


def _paper_attack(point: Point, source: str) -> list[ClaimEvidence]:
    """Return evidence from the paper's own attack, if it was part of the trade-off's suite."""
    says = f"k-means, elbow method, {point.setting}: grouped perfectly"
    out = []
    for attack in point.attacks:
        share = attack["perfect"]
        if attack["attack"] == "code means, k-means, elbow" and share is not None:
            ours = f"{100 * share:.1f}\xa0%"
            out.append(ClaimEvidence(says, ours, "at most 10\xa0%", float(share <= 0.1), "1", source))
    return out


def _strongest(point: Point, source: str) -> list[ClaimEvidence]:
    """Return evidence from the strongest attack of the suite."""
    out = []
    for told, says in (("", "knowing nothing"), ("Q", "knowing Q")):
        if best := _best(point, told):
            ours = f"{100 * best['sample_recovery']:.1f}\xa0% ({best['attack']})"
            name = f"Strongest attack, {says}, {point.setting}: rows' labels recovered"
            paper = "at most 10\xa0%" if not told else "about 30\xa0%"
            reached = float(best["sample_recovery"] <= (0.1 if not told else 0.3))
            out.append(ClaimEvidence(name, ours, paper, reached, "1", source))
    return out


def _best(point: Point, knows: str) -> Mapping[str, Any] | None:
    """Return the strongest attack with at most this side information."""
    there = []
    for attack in point.attacks:
        is_fair = attack["knows"] in ("", knows) and attack["attack"] not in (AS_SEEN, GUESS)
        if is_fair and attack["sample_recovery"] is not None:
            there.append(attack)
    return max(there, key=lambda a: float(a["sample_recovery"]), default=None)


def _why(points: Sequence[Point]) -> str:
    start = (
        "Copies of a row differ in their masked label and their noise only. The mean over a masked label's rows "
        "averages noise away, so masked labels of one label have nearly the same mean and can be grouped."
    )
    best = [found for point in points if (found := _best(point, "Q"))]
    if not best:
        return start
    top = max(best, key=lambda a: float(a["sample_recovery"]))
    return (
        f"{start} An attacker who knows the number of labels recovers {100 * top['sample_recovery']:.1f}\xa0% of the "
        "rows' labels. The plot of privacy against utility below shows what other ways of hiding cost."
    )
