"""Recommend a setting in words: those that no other beats in accuracy, secrecy and bytes together."""

from __future__ import annotations

from collections.abc import Sequence

from splitwiper.formats import percent
from splitwiper_lab.evaluation.tradeoff import Point

CLOSE = 0.02
"""A loss of accuracy that users hardly notice."""
NOTHING = 0.95
"""The share of rows recovered from which nothing counts as hidden."""
HIDDEN = 0.55
"""The share of rows recovered up to which labels count as hidden from the attacks tried."""


def frontier(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the Pareto-optimal points in accuracy, recovery and bytes."""
    return tuple(p for p in points if not any(_beats(other, p) for other in points))


def _beats(one: Point, other: Point) -> bool:
    a, b = (one.accuracy, -one.recovery, -one.sent), (other.accuracy, -other.recovery, -other.sent)
    return all(x >= y for x, y in zip(a, b, strict=True)) and a != b


def recommendation(points: Sequence[Point]) -> str:
    """Recommend in a paragraph: a setting that hides labels at an acceptable cost, or, if there is none, the best."""
    plain = next((p for p in points if p.setting == "plain labels"), None)
    if plain is None or len(points) < 2:
        return "Too few settings were measured to recommend one."
    others = [p for p in points if p is not plain]
    cheap = [p for p in others if p.accuracy >= plain.accuracy - CLOSE]
    hidden = [p for p in others if p.recovery <= HIDDEN]
    both = [p for p in cheap if p in hidden]
    parts = []
    if both:
        best = min(both, key=lambda p: p.recovery)
        parts.append(
            f"Take {_told(best, plain)}: it costs at most {percent(CLOSE)} and hides labels from all attacks tried."
        )
    else:
        parts.append(
            f"No setting that costs at most {percent(CLOSE)} of accuracy keeps the strongest attack at or below "
            f"{percent(HIDDEN)} of the rows. Do not rely on masked labels alone against a server that attacks."
        )
        if cheap and (best := min(cheap, key=lambda p: p.recovery)).recovery < NOTHING:
            parts.append(f"The best of the cheap ones is {_told(best, plain)}.")
        elif cheap:
            parts.append("Those that cost less hide no more than names and counts.")
        if hidden:
            parts.append(f"The cheapest that hides labels is {_told(max(hidden, key=lambda p: p.accuracy), plain)}.")
        else:
            parts.append(f"What hides most is {_told(min(others, key=lambda p: p.recovery), plain)}.")
    least = min(p.recovered("aux") for p in points)
    parts.append(f"An attacker who knows ten rows of each label recovers at least {percent(least)}, whichever mode is used.")
    return " ".join(parts)


def _told(point: Point, plain: Point) -> str:
    change = 100 * (point.accuracy - plain.accuracy)
    return (
        f"“{point.setting}” ({change:+.1f} points of accuracy, {point.sent / plain.sent:.2g} × the bytes, "
        f"{percent(point.recovery)} of the rows recovered)"
    )
