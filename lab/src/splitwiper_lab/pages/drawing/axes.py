"""Axes of charts: from values to positions, linear or logarithmic, with round numbers or names beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from splitwiper_lab.pages.drawing.svg import ticks

Show = Callable[[float], str]


def plainly(value: float) -> str:
    """Format a number for an axis.

    >>> plainly(1500.0), plainly(0.05), plainly(0.0)
    ('1,500', '0.05', '0')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def share(value: float) -> str:
    r"""Format a share for an axis, in per cent.

    >>> share(0.25)
    '25\xa0%'
    """
    return f"{100 * value:.4g}\xa0%"


@dataclass(frozen=True)
class Axis:
    """The settings of one axis.

    Attributes:
        title: the quantity, with its unit.
        show: formats a value.
        log: logarithmic; zero and negative values are at its foot, which is then marked 0.
        low: the axis begins there or lower.
        high: the axis ends there or higher.
        marks: values to mark, with their names, instead of round numbers; the axis reaches to all of them.
    """

    title: str
    show: Show = plainly
    log: bool = False
    low: float | None = None
    high: float | None = None
    marks: Mapping[float, str] | None = None


class Scale:
    """Maps values to positions on a drawing."""

    def __init__(self, axis: Axis, values: Iterable[float], start: float, end: float) -> None:
        found = [v for v in values if math.isfinite(v)] + list(axis.marks or ())
        found += [v for v in (axis.low, axis.high) if v is not None and (v > 0 or not axis.log)]
        positive = [v for v in found if v > 0]
        self.axis, self._start, self._end = axis, start, end
        self.log = axis.log and bool(positive)
        self.zero = self.log and len(positive) < len(found)
        if self.log:
            low, high = math.log10(min(positive)), math.log10(max(positive))
            room = 0.08 * (high - low) or 0.3
            self._low, self._high = low - room, high + room
        else:
            self._low, self._high = _round(found, axis)

    def at(self, value: float) -> float:
        """Return the position of a value; values outside are put on the edge."""
        foot = 0.14 if self.zero else 0.0
        if self.log and value <= 0:
            return self._start
        given = math.log10(value) if self.log else value
        part = (given - self._low) / (self._high - self._low)
        return self._start + (foot + (1 - foot) * min(max(part, 0.0), 1.0)) * (self._end - self._start)

    def ticks(self) -> list[tuple[float, str]]:
        """Return values to mark, with their labels."""
        if self.axis.marks is not None:
            return list(self.axis.marks.items())
        if not self.log:
            steps = _steps(self._high - self._low)
            return [(self._low + step, self.axis.show(round(self._low + step, 12))) for step in steps]
        wide = self._high - self._low > 1.7
        many = [
            factor * 10.0**power
            for power in range(math.floor(self._low), math.ceil(self._high) + 1)
            for factor in ((1,) if wide else (1, 2, 5))
        ]
        inside = [v for v in many if self._low <= math.log10(v) <= self._high]
        inside = inside[:: max(1, math.ceil(len(inside) / 6))]
        return [(0.0, self.axis.show(0.0))] * self.zero + [(v, self.axis.show(float(f"{v:.6g}"))) for v in inside]


def _steps(span: float) -> list[float]:
    return [step for step in ticks(span) if step <= span * (1 + 1e-9)]


def _round(found: Sequence[float], axis: Axis) -> tuple[float, float]:
    """Return round ends for a linear axis."""
    low, high = min(found, default=0.0), max(found, default=1.0)
    if high - low < 1e-12:
        room = abs(high) / 2 or 1.0
        low, high = (low - room if low else 0.0), high + room
        low = max(low, axis.low) if axis.low is not None else low
    if axis.marks is not None:
        return low, high
    step = ticks(high - low)[1]
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
