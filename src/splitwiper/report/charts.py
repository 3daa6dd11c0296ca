"""Numbers for charts, which the template ``parts.html`` draws: pairs of bars, and two curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_MOST_DOTS = 40  # with more values than this, dots on a curve would touch
_MOST_MARKS = 6  # numbers that fit below a curve on a phone


@dataclass(frozen=True)
class Pair:
    """Two values of one name, drawn as bars. ``remark`` is a short text that also highlights them."""

    name: str
    first: float | None
    second: float | None
    remark: str = ""


@dataclass(frozen=True)
class Dot:
    """One value on a curve: its place in per cent of the plot, from the left and from the top, and its description."""

    x: float
    y: float
    tip: str


@dataclass(frozen=True)
class Curve:
    """One curve: an SVG path, and dots if there is room for them."""

    path: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True)
class CurveChart:
    """Curves over 1, 2, 3 …, in per cent of the plot; marks are pairs of a place and a number.

    Attributes:
        label: what the chart shows, for readers who cannot see it.
        across: the title of the horizontal axis.
        up_marks: places from the bottom.
        across_marks: places from the left.
    """

    label: str
    across: str
    up_marks: tuple[tuple[float, str], ...]
    across_marks: tuple[tuple[float, str], ...]
    curves: tuple[Curve, ...]


def longest(pairs: Sequence[Pair]) -> float:
    """Return the largest value of all pairs; 0 if there is none."""
    values: list[float | None] = []
    for pair in pairs:
        values += [pair.first, pair.second]
    return _largest(values)


def part(value: float | None, whole: float) -> float:
    """Return a value as a part of the longest bar, between 0 and 1.

    >>> part(0.5, 2.0), part(None, 2.0), part(3.0, 2.0), part(0.0, 0.0)
    (0.25, 0.0, 1.0, 0.0)
    """
    if value is None or not math.isfinite(value) or whole <= 0:
        return 0.0
    return round(min(max(value / whole, 0.0), 1.0), 4)


def curve_chart(lines: Sequence[tuple[str, Sequence[float]]], *, label: str, across: str) -> CurveChart:
    """Place curves over 1, 2, 3 …, from zero. Values that are not finite leave a gap.

    Args:
        lines: the name of each curve, and its values.
        label: describes the chart.
        across: the title of the horizontal axis.
    """
    top, last = 0.0, 1
    for _, values in lines:
        top, last = max(top, _largest(values)), max(last, len(values))
    steps = ticks(top)

    def x_of(number: int) -> float:
        return round(100 * (number - 1) / (last - 1), 2) if last > 1 else 50.0

    curves = []
    for name, values in lines:
        path, dots, pen_is_down = "", [], False  # a path of SVG: M moves the pen, and L draws a line
        for number, value in enumerate(values, start=1):
            if not math.isfinite(value):
                pen_is_down = False
                continue
            x, y = x_of(number), round(100 * (1 - part(value, steps[-1])), 2)
            path += f"{'L' if pen_is_down else 'M'}{x} {y}"
            pen_is_down = True
            dots.append(Dot(x, y, f"{name}, {number}: {value:.4g}"))
        curves.append(Curve(path, tuple(dots) if last <= _MOST_DOTS else ()))
    up_marks = [(round(100 * step / steps[-1], 2), f"{step:g}") for step in steps]
    across_marks = [(x_of(number), str(number)) for number in _numbers_to_mark(last)]
    return CurveChart(label, across, tuple(up_marks), tuple(across_marks), tuple(curves))


def ticks(top: float, most: int = 5) -> list[float]:
    """Return round steps from 0 to at least ``top``.

    >>> ticks(2.3)
    [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    """
    if not math.isfinite(top) or top <= 0:
        return [0.0, 1.0]
    # the step is 1, 2, 2.5, 5 or 10 times a power of ten: the smallest of these that needs at most `most` steps
    scale = 10.0 ** math.floor(math.log10(top / most))
    for factor in (1, 2, 2.5, 5, 10):
        step = scale * factor
        if step * most >= top * (1 - 1e-9):
            break
    return [round(step * number, 12) for number in range(math.ceil(top / step - 1e-9) + 1)]


def _numbers_to_mark(last: int) -> list[int]:
    step = max(1, math.ceil(ticks(last, _MOST_MARKS - 1)[1])) if last > _MOST_MARKS else 1
    return sorted({1, *range(step, last + 1, step)})


def _largest(values: Iterable[float | None]) -> float:
    """Return the largest value that can be drawn; 0 if there is none."""
    return max((value for value in values if value is not None and math.isfinite(value)), default=0.0)
