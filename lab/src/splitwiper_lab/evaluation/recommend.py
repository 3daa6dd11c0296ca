"""Recommend a setting in words: those that no other beats in accuracy, secrecy and bytes together."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

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
    best = []
    for point in points:
        if not any(_beats(other, point) for other in points):
            best.append(point)
    return tuple(best)


def _beats(one: Point, other: Point) -> bool:
    """Return whether a point is better in something, and worse in nothing."""
    no_worse = one.accuracy >= other.accuracy and one.recovery <= other.recovery and one.sent <= other.sent
    better = one.accuracy > other.accuracy or one.recovery < other.recovery or one.sent < other.sent
    return no_worse and better


def recommendation(points: Sequence[Point]) -> str:
    """Recommend in a paragraph: a setting that hides labels at an acceptable cost, or, if there is none, the best."""
    plain, others, cheap, hidden = None, [], [], []
    for point in points:
        if point.setting == "plain labels":
            plain = point
        else:
            others.append(point)
    if plain is None or not others:
        return "Too few settings were measured to recommend one."
    for point in others:
        if point.accuracy >= plain.accuracy - CLOSE:
            cheap.append(point)
        if point.recovery <= HIDDEN:
            hidden.append(point)
    both = [point for point in cheap if point in hidden]  # cheap and hidden
    if both:
        best = _described(min(both, key=_recovery), plain)
        text = f"Take {best}: it costs at most {percent(CLOSE)} and hides labels from all attacks tried."
    else:
        text = (
            f"No setting that costs at most {percent(CLOSE)} of accuracy keeps the strongest attack at or below "
            f"{percent(HIDDEN)} of the rows. Do not rely on masked labels alone against a server that attacks."
        )
        cheapest = min(cheap, key=_recovery, default=None)
        if cheapest and cheapest.recovery < NOTHING:
            text += f" The best of the cheap ones is {_described(cheapest, plain)}."
        elif cheapest:
            text += " Those that cost less hide no more than names and counts."
        if hidden:
            best = _described(max(hidden, key=attrgetter("accuracy")), plain)
            text += f" The cheapest that hides labels is {best}."
        else:
            text += f" What hides most is {_described(min(others, key=_recovery), plain)}."
    least = percent(min(point.recovered("aux") for point in points))
    return f"{text} An attacker who knows ten rows of each label recovers at least {least}, whichever mode is used."


_recovery = attrgetter("recovery")


def _described(point: Point, plain: Point) -> str:
    change = 100 * (point.accuracy - plain.accuracy)
    return (
        f"“{point.setting}” ({change:+.1f} points of accuracy, {point.sent / plain.sent:.2g} × the bytes, "
        f"{percent(point.recovery)} of the rows recovered)"
    )
