"""Numbers for charts, which the template ``parts.html`` draws: pairs of bars, and two curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_MOST_DOTS = 40
"""With more values than this, dots on a curve would touch."""
_MOST_MARKS = 6
"""Numbers that fit below a curve on a phone."""


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
    return _largest(value for pair in pairs for value in (pair.first, pair.second))


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
    steps = ticks(_largest(value for _, values in lines for value in values))
    last = max((len(values) for _, values in lines), default=1)

    def x_of(number: int) -> float:
        return round(100 * (number - 1) / (last - 1), 2) if last > 1 else 50.0

    curves = []
    for name, values in lines:
        path, dots, pen_is_down = "", [], False
        for number, value in enumerate(values, start=1):
            if not math.isfinite(value):
                pen_is_down = False
                continue
            x, y = x_of(number), round(100 * (1 - part(value, steps[-1])), 2)
            path += f"{'L' if pen_is_down else 'M'}{x} {y}"
            pen_is_down = True
            dots.append(Dot(x, y, f"{name}, {number}: {value:.4g}"))
        curves.append(Curve(path, tuple(dots) if last <= _MOST_DOTS else ()))
    return CurveChart(
        label=label,
        across=across,
        up_marks=tuple((round(100 * step / steps[-1], 2), f"{step:g}") for step in steps),
        across_marks=tuple((x_of(number), str(number)) for number in _numbers_to_mark(last)),
        curves=tuple(curves),
    )


def ticks(top: float, most: int = 5) -> list[float]:
    """Return round steps from 0 to at least ``top``.

    >>> ticks(2.3)
    [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    """
    if not math.isfinite(top) or top <= 0:
        return [0.0, 1.0]
    # the step is 1, 2, 2.5, 5 or 10 times a power of ten: the smallest of these that needs at most `most` steps
    scale = 10.0 ** math.floor(math.log10(top / most))
    step = next(scale * factor for factor in (1, 2, 2.5, 5, 10) if scale * factor * most >= top * (1 - 1e-9))
    return [round(step * place, 12) for place in range(math.ceil(top / step - 1e-9) + 1)]


def _numbers_to_mark(last: int) -> list[int]:
    step = max(1, math.ceil(ticks(last, _MOST_MARKS - 1)[1])) if last > _MOST_MARKS else 1
    return sorted({1, *range(step, last + 1, step)})


def _largest(values: Iterable[float | None]) -> float:
    """Return the largest value that can be drawn; 0 if there is none."""
    return max((value for value in values if value is not None and math.isfinite(value)), default=0.0)
