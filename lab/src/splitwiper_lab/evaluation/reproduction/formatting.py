"""Quantities as text: percentages, times, sizes and numbers, with their deviation over seeds."""

from __future__ import annotations

from collections.abc import Mapping

from splitwiper.formats import NONE, seconds, size
from splitwiper_lab.evaluation.comparison import SeedSpread

_UNITS = dict.fromkeys(("training", "sending", "seconds", "time"), "s")
_UNITS |= dict.fromkeys(("bytes", "sent", "storage"), "B")
_UNITS |= dict.fromkeys(("messages", "flops", "auc", "exact", "took_part"), "")


def unit(name: str) -> str:
    """Return a quantity's unit: %, s, bytes (B) or none.

    >>> unit("learned.retained"), unit("learned.others.sending"), unit("two models.auc")
    ('%', 's', '')
    """
    return _UNITS.get(name.rpartition(".")[2], "%")


def amount(value: float, name: str) -> str:
    """Format a quantity's value, without its unit, except for bytes.

    >>> amount(0.9312, "learned.retained"), amount(1234.5, "seconds"), amount(0.0123, "seconds")
    ('93.1', '1,234', '0.0123')
    """
    if unit(name) == "%":
        return f"{100 * value:.1f}"
    if unit(name) == "B":
        return size(round(value))
    if not value:
        return "0"
    if name.endswith("flops"):  # in powers of ten: 1.2e12
        return f"{value:.3g}".replace("e+", "e")
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def in_column(spread: SeedSpread | None, name: str) -> str:
    """Format a quantity with its deviation, for a column whose title gives the unit."""
    if spread is None or spread.mean is None:
        return NONE
    around = f" ±\xa0{amount(spread.deviation, name)}" if spread.deviation else ""
    return amount(spread.mean, name) + around


def on_terminal(values: Mapping[str, SeedSpread], name: str) -> str:
    """Format a quantity with its unit; a client's ``time`` is its training and sending together.

    >>> on_terminal({"learned.retained": SeedSpread(0.9312, 0.01, 3)}, "learned.retained")
    '93.1 ±1.0'
    """
    client = name.removesuffix(".time")
    parts = (name,) if client == name else (f"{client}.training", f"{client}.sending")
    mean, deviation = 0.0, None
    for part in parts:
        spread = values.get(part)
        if spread is None or spread.mean is None:
            return NONE
        mean, deviation = mean + spread.mean, spread.deviation
    if unit(name) == "s":
        return seconds(mean).replace("\xa0", " ")
    if unit(name) == "B":
        return size(round(mean)).replace("\xa0", " ")
    if unit(name) == "":
        return f"{mean:.3g}"
    return f"{100 * mean:.1f}" + (f" ±{100 * deviation:.1f}" if deviation is not None else "")
