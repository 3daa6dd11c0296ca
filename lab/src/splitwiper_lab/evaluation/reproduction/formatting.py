"""Quantities as text: percentages, times and numbers, with their deviation over seeds."""

from __future__ import annotations

from collections.abc import Mapping

from splitwiper.formats import seconds, size
from splitwiper_lab.evaluation.comparison import SeedSpread

_TIMES = ("seconds", "training", "sending", "time")
_SIZES = ("bytes", "sent", "storage")
_COUNTS = ("messages", "took_part", "flops", "auc", "exact")


def told(values: Mapping[str, SeedSpread], name: str) -> str:
    """Format a quantity for people; a client's ``time`` is its training and sending together.

    >>> told({"learned.retained": SeedSpread(0.9312, 0.01, 3), "seconds": SeedSpread(1, None, 1)}, "learned.retained")
    '93.1 ±1.0'
    """
    spread, last = quantity(values, name), name.rpartition(".")[2]
    if spread is None or spread.mean is None:
        return "–"
    if last in _TIMES:
        return seconds(spread.mean).replace("\xa0", " ")
    if last in _SIZES:
        return size(round(spread.mean)).replace("\xa0", " ")
    if last in _COUNTS:
        return f"{spread.mean:.3g}"
    around = f" ±{100 * spread.deviation:.1f}" if spread.deviation is not None else ""
    return f"{100 * spread.mean:.1f}{around}"


def quantity(values: Mapping[str, SeedSpread], name: str) -> SeedSpread | None:
    """Return a quantity over seeds; a client's ``time`` is its training and sending together."""
    if not name.endswith(".time"):
        return values.get(name)
    parts = [values.get(f"{name.removesuffix('.time')}.{part}") for part in ("training", "sending")]
    means = [part.mean for part in parts if part and part.mean is not None]
    return SeedSpread(sum(means), None, parts[0].count if parts[0] else 0) if len(means) == 2 else None
