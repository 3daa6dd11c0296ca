"""Charts as shapes with positions: upright bars, lying bars, lines. The template ``parts.html`` draws them as SVG.

Colours come from the style sheet through class names (``first``, ``second``, ``mark``), so charts follow light, dark
and print. Every bar and dot has a tip with its exact value.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from splitwiper.formats import percent

Show = Callable[[float | None], str]
_SERIES = ("first", "second")


@dataclass(frozen=True)
class Pair:
    """A group of two bars. ``remark`` is a short text that also highlights the group."""

    name: str
    first: float | None
    second: float | None
    remark: str = ""


@dataclass(frozen=True)
class Shape:
    """One SVG element: its tag, attributes, text and tooltip."""

    tag: str
    attributes: dict[str, str]
    text: str = ""
    tip: str = ""


@dataclass(frozen=True)
class Chart:
    """A drawing: its size, what it shows, for readers who cannot see it, and its shapes from back to front."""

    width: float
    height: float
    label: str
    shapes: tuple[Shape, ...]


def upright_bars(pairs: Sequence[Pair], *, label: str, series: tuple[str, str]) -> Chart:
    """Draw upright pairs of bars of shares between 0 and 1, for up to about ten groups."""
    width, height, left, top, floor = 780.0, 296.0, 44.0, 26.0, 246.0
    pitch = (width - left) / max(len(pairs), 1)
    thick = min(pitch * 0.36, 34.0)
    shapes = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = floor - tick * (floor - top)
        shapes.append(_stroke(left, y, width, y, "axis" if tick == 0 else "grid"))
        shapes.append(_text(left - 8, y + 4, f"{100 * tick:.0f}\xa0%", "tick", anchor="end"))
    for place, pair in enumerate(pairs):
        middle = left + pitch * (place + 0.5)
        strong = " strong" if pair.remark else ""
        if pair.remark:
            shapes.append(_rectangle(middle - pitch / 2 + 2, 4, pitch - 4, height - 8, "band", rx="5"))
        bars = zip((middle - thick - 1, middle + 1), series, (pair.first, pair.second), _SERIES, strict=True)
        for x, name, value, style in bars:
            tall = _share(value, 1.0) * (floor - top)
            tip = f"{pair.name}, {name.lower()}: {percent(value)}"
            if tall:
                shapes.append(_bar(x, floor - tall, thick, tall, style, tip))
            words = percent(value, unit=False)
            if value in (0, 1):  # two full bars side by side have room for "100", not for "100.0"
                words = words.removesuffix(".0")
            shapes.append(_text(x + thick / 2, floor - tall - 6, words, f"value{strong}", anchor="middle", full=tip))
        name = fit(pair.name, pitch - 6, 13)
        shapes.append(_text(middle, floor + 19, name, f"name{strong}", anchor="middle", full=pair.name))
        if pair.remark:
            remark = fit(pair.remark, pitch - 6, 11)
            shapes.append(_text(middle, floor + 36, remark, "remark", anchor="middle", full=pair.remark))
    return Chart(width, height, label, tuple(shapes))


def lying_bars(
    pairs: Sequence[Pair], *, label: str, show: Show, series: tuple[str, str], top: float | None = None
) -> Chart:
    """Draw lying pairs of bars, any number of groups, 360 wide: fits a phone and half the width of a full page.

    Args:
        pairs: the groups.
        label: describes the chart.
        show: formats a value.
        series: the names of the two bars of each group.
        top: the value of the longest possible bar; by default the largest value there is.
    """
    width, left, right, pitch, thick, head = 360.0, 100.0, 66.0, 38.0, 12.0, 6.0
    if top is None:
        top = _largest(value for pair in pairs for value in (pair.first, pair.second))
    shapes = []
    for place, pair in enumerate(pairs):
        y = head + pitch * place
        strong = " strong" if pair.remark else ""
        if pair.remark:
            shapes.append(_rectangle(0, y - 1, width, pitch - 4, "band", rx="4"))
        name = fit(pair.name, left - 14, 13)
        baseline = y + (14 if pair.remark else 20.5)
        shapes.append(_text(left - 8, baseline, name, f"name{strong}", anchor="end", full=pair.name))
        if pair.remark:
            remark = fit(pair.remark, left - 14, 11)
            shapes.append(_text(left - 8, y + 28, remark, "remark", anchor="end", full=pair.remark))
        for offset, series_name, value, style in zip((3, 17), series, (pair.first, pair.second), _SERIES, strict=True):
            long = _share(value, top) * (width - left - right)
            tip = f"{pair.name}, {series_name.lower()}: {show(value)}"
            if long:
                shapes.append(_bar(left, y + offset, long, thick, style, tip))
            shapes.append(_text(left + long + 6, y + offset + 10, show(value), f"value{strong}", full=tip))
    height = head + pitch * len(pairs)
    shapes.append(_stroke(left, 2, left, height - 2, "axis"))
    return Chart(width, height, label, tuple(shapes))


def curves(
    lines: Sequence[tuple[str, Sequence[float]]], *, label: str, across: str, width: float, height: float
) -> Chart:
    """Draw two curves over 1, 2, 3 …, from zero. Values that are not finite leave a gap.

    Args:
        lines: the name of each curve, and its values.
        label: describes the chart.
        across: the title of the horizontal axis.
        width: of the chart.
        height: of the chart.
    """
    left, right, above, below = 46.0, 12.0, 12.0, 44.0
    steps = ticks(_largest(value for _, values in lines for value in values))
    last = max((len(values) for _, values in lines), default=1)
    floor, span = height - below, width - left - right

    def x_of(place: int) -> float:
        return left + span * (place / (last - 1) if last > 1 else 0.5)

    def y_of(value: float) -> float:
        return floor - _share(value, steps[-1]) * (floor - above)

    shapes = []
    for step in steps:
        shapes.append(_stroke(left, y_of(step), width - right, y_of(step), "axis" if step == 0 else "grid"))
        shapes.append(_text(left - 8, y_of(step) + 4, f"{step:g}", "tick", anchor="end"))
    for number in _numbers_to_mark(last, 10 if width > 500 else 5):
        shapes.append(_text(x_of(number - 1), floor + 18, str(number), "tick", anchor="middle"))
    shapes.append(_text(left + span / 2, height - 6, across, "tick", anchor="middle"))
    for (name, values), style in zip(lines, _SERIES, strict=True):
        path, dots, pen_is_down = "", [], False
        for place, value in enumerate(values):
            if not math.isfinite(value):
                pen_is_down = False
                continue
            x, y = x_of(place), y_of(value)
            path += f"{'L' if pen_is_down else 'M'}{x:.1f} {y:.1f}"
            pen_is_down = True
            attributes = {"cx": _number(x), "cy": _number(y), "r": "3", "class": f"dot {style}"}
            dots.append(Shape("circle", attributes, tip=f"{name}, {place + 1}: {value:.4g}"))
        if path:
            shapes.append(Shape("path", {"d": path, "class": f"line {style}"}))
        if span / last >= 20:  # closer dots would touch
            shapes += dots
    return Chart(width, height, label, tuple(shapes))


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


def fit(text: str, width: float, em: float) -> str:
    """Shorten a text with an ellipsis so that it fits.

    >>> fit("north", 100, 12), fit("a very long name", 60, 12)
    ('north', 'a very…')
    """
    if text_width(text, em) <= width:
        return text
    while text and text_width(text + "…", em) > width:
        text = text[:-1]
    return text.rstrip() + "…"


def text_width(text: str, em: float) -> float:
    """Estimate, generously, the width of a text set at ``em`` pixels."""
    return em * sum(1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.58 for letter in text)


def _numbers_to_mark(last: int, most: int) -> list[int]:
    step = max(1, math.ceil(ticks(last, most)[1])) if last > most else 1
    return sorted({1, *range(step, last + 1, step)})


def _largest(values: Iterable[float | None]) -> float:
    """Return the largest value that can be drawn; 0 if there is none."""
    return max((value for value in values if value is not None and math.isfinite(value)), default=0.0)


def _share(value: float | None, top: float) -> float:
    """Return the share of the axis that a value takes, between 0 and 1."""
    if value is None or not math.isfinite(value) or top <= 0:
        return 0.0
    return min(max(value / top, 0.0), 1.0)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _rectangle(x: float, y: float, width: float, height: float, style: str, tip: str = "", *, rx: str = "0") -> Shape:
    sizes = {"x": x, "y": y, "width": width, "height": height}
    return Shape("rect", {name: _number(size) for name, size in sizes.items()} | {"rx": rx, "class": style}, tip=tip)


def _bar(x: float, y: float, width: float, height: float, style: str, tip: str) -> Shape:
    # The outline of a hollow bar lies inside its rectangle, so that it is exactly as long as a solid one.
    if style == "first":
        x, y, width, height = x + 0.5, y + 0.5, max(width - 1, 0.5), max(height - 1, 0.5)
    return _rectangle(x, y, width, height, f"bar {style}", tip)


def _stroke(x1: float, y1: float, x2: float, y2: float, style: str) -> Shape:
    ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    return Shape("line", {name: _number(value) for name, value in ends.items()} | {"class": style})


def _text(x: float, y: float, words: str, style: str, *, anchor: str = "start", full: str = "") -> Shape:
    """Place a line of text; ``full`` becomes its tip if the text was shortened."""
    attributes = {"x": _number(x), "y": _number(y), "class": style, "text-anchor": anchor}
    return Shape("text", attributes, words, full if full != words else "")
