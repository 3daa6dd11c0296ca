"""Hand-made inline SVG charts: paired columns, paired rows, lines.

Colours come from the page's style sheet through class names (``first``, ``second``, ``mark``), so the charts follow
light, dark and print. Every chart is one ``<svg role="img">`` with a label that says what it shows, and every bar
carries a ``<title>`` with its exact value.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from splitwiper.report.markup import Markup, el, join

Show = Callable[[float | None], str]


@dataclass(frozen=True)
class SvgPair:
    """A group of two bars. ``mark`` is a short remark that also highlights the group."""

    name: str
    first: float | None
    second: float | None
    mark: str = ""


@dataclass(frozen=True)
class SvgLine:
    """One line of a line chart; values that are not finite leave a gap."""

    name: str
    values: tuple[float, ...]
    style: str
    """``first`` or ``second``."""


def svg(width: float, height: float, label: str, *parts: Markup, class_: str | None = None) -> Markup:
    """Build a scalable drawing with an accessible name."""
    return el("svg", *parts, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label, class_=class_)


def text_width(text: str, em: float) -> float:
    """Estimate, generously, the width of a text set at ``em`` pixels."""
    return em * sum(1.0 if unicodedata.east_asian_width(c) in "WF" else 0.58 for c in text)


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


def ticks(top: float, most: int = 5) -> list[float]:
    """Return round steps from 0 to at least ``top``.

    >>> ticks(2.3)
    [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    """
    if not math.isfinite(top) or top <= 0:
        return [0.0, 1.0]
    scale = 10.0 ** math.floor(math.log10(top / most))
    step = next(scale * m for m in (1, 2, 2.5, 5, 10) if scale * m * most >= top * (1 - 1e-9))
    return [round(step * i, 12) for i in range(math.ceil(top / step - 1e-9) + 1)]


def text(x: float, y: float, words: str, class_: str, *, anchor: str = "start", full: str = "") -> Markup:
    """Draw a line of text; ``full`` becomes its tooltip if the text was shortened."""
    tip = [el("title", full)] if full and full != words else []
    return el("text", *tip, words, x=x, y=y, class_=class_, text_anchor=None if anchor == "start" else anchor)


def stroke(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """Draw a straight line."""
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def share(value: float | None, top: float) -> float:
    """Return the share of the axis that a value takes, between 0 and 1."""
    if value is None or not math.isfinite(value) or top <= 0:
        return 0.0
    return min(max(value / top, 0.0), 1.0)


def _bar(x: float, y: float, width: float, height: float, style: str, tip: str) -> Markup:
    # The outline is inside the rectangle, so a hollow bar is exactly as long as a solid one.
    if style == "first":
        x, y, width, height = x + 0.5, y + 0.5, max(width - 1, 0.5), max(height - 1, 0.5)
    return el("rect", el("title", tip), x=x, y=y, width=width, height=height, class_=f"bar {style}")


def columns(pairs: Sequence[SvgPair], *, label: str, show: Show, series: tuple[str, str], width: float = 780) -> Markup:
    """Draw vertical paired bars of shares between 0 and 1, for up to about ten groups."""
    left, top, bottom, height = 44.0, 26.0, 246.0, 296.0
    pitch = (width - left) / max(len(pairs), 1)
    bar = min(pitch * 0.36, 34.0)
    parts = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = bottom - tick * (bottom - top)
        parts.append(stroke(left, y, width, y, "axis" if tick == 0 else "grid"))
        parts.append(text(left - 8, y + 4, f"{100 * tick:.0f}\xa0%", "tick", anchor="end"))
    for i, pair in enumerate(pairs):
        middle = left + pitch * (i + 0.5)
        em = "strong" if pair.mark else ""
        if pair.mark:
            parts.append(
                el(
                    "rect",
                    x=middle - pitch / 2 + 2,
                    y=4,
                    width=pitch - 4,
                    height=height - 8,
                    rx=5,
                    class_="band",
                )
            )
        for at, name, value, style in (
            (middle - bar - 1, series[0], pair.first, "first"),
            (middle + 1, series[1], pair.second, "second"),
        ):
            tall = share(value, 1.0) * (bottom - top)
            tip = f"{pair.name}, {name.lower()}: {show(value)}"
            if tall:
                parts.append(_bar(at, bottom - tall, bar, tall, style, tip))
            words = show(value).removesuffix("\xa0%").removesuffix(".0")  # two full bars side by side: 100 and 100
            parts.append(text(at + bar / 2, bottom - tall - 6, words, f"value {em}", anchor="middle", full=tip))
        name = fit(pair.name, pitch - 6, 13)
        parts.append(text(middle, bottom + 19, name, f"name {em}", anchor="middle", full=pair.name))
        if pair.mark:
            remark = fit(pair.mark, pitch - 6, 11)
            parts.append(text(middle, bottom + 36, remark, "remark", anchor="middle", full=pair.mark))
    return svg(width, height, label, *parts)


def rows(
    pairs: Sequence[SvgPair], *, label: str, show: Show, series: tuple[str, str], top: float | None = None
) -> Markup:
    """Draw horizontal paired bars, any number of groups, 360 wide: fits a phone and half the width of a full page."""
    width, left, right, pitch, thick, head = 360.0, 100.0, 66.0, 38.0, 12.0, 6.0
    if top is None:
        top = max((v for p in pairs for v in (p.first, p.second) if v and math.isfinite(v)), default=0.0)
    parts = []
    for i, pair in enumerate(pairs):
        y = head + pitch * i
        em = "strong" if pair.mark else ""
        if pair.mark:
            parts.append(el("rect", x=0, y=y - 1, width=width, height=pitch - 4, rx=4, class_="band"))
        name = fit(pair.name, left - 14, 13)
        line = y + (14 if pair.mark else 20.5)
        parts.append(text(left - 8, line, name, f"name {em}", anchor="end", full=pair.name))
        if pair.mark:
            remark = fit(pair.mark, left - 14, 11)
            parts.append(text(left - 8, y + 28, remark, "remark", anchor="end", full=pair.mark))
        for at, series_name, value, style in (
            (y + 3, series[0], pair.first, "first"),
            (y + 17, series[1], pair.second, "second"),
        ):
            long = share(value, top) * (width - left - right)
            tip = f"{pair.name}, {series_name.lower()}: {show(value)}"
            if long:
                parts.append(_bar(left, at, long, thick, style, tip))
            parts.append(text(left + long + 6, at + 10, show(value), f"value {em}", full=tip))
    height = head + pitch * len(pairs)
    parts.append(stroke(left, 2, left, height - 2, "axis"))
    return svg(width, height, label, *parts)


def lines(series: Sequence[SvgLine], *, label: str, across: str, width: float, height: float) -> Markup:
    """Draw a line chart over 1, 2, 3…, from zero."""
    left, right, above, below = 46.0, 12.0, 12.0, 44.0
    finite = [v for line in series for v in line.values if math.isfinite(v)]
    steps = ticks(max(finite, default=0.0))
    last = max((len(line.values) for line in series), default=1)
    floor, span = height - below, width - left - right

    def spot(i: int, value: float) -> tuple[float, float]:
        return (
            left + span * ((i / (last - 1)) if last > 1 else 0.5),
            floor - share(value, steps[-1]) * (floor - above),
        )

    parts = []
    for step in steps:
        y = spot(0, step)[1]
        parts.append(stroke(left, y, width - right, y, "axis" if step == 0 else "grid"))
        parts.append(text(left - 8, y + 4, f"{step:g}", "tick", anchor="end"))
    for epoch in _epochs(last, 10 if width > 500 else 5):
        parts.append(text(spot(epoch - 1, 0)[0], floor + 18, str(epoch), "tick", anchor="middle"))
    parts.append(text(left + span / 2, height - 6, across, "tick", anchor="middle"))
    for line in series:
        at = [(i, v, *spot(i, v)) for i, v in enumerate(line.values) if math.isfinite(v)]
        path = "".join(
            f"{'L' if k and at[k - 1][0] == i - 1 else 'M'}{x:.1f} {y:.1f}" for k, (i, _, x, y) in enumerate(at)
        )
        if path:
            parts.append(el("path", d=path, class_=f"line {line.style}"))
        if span / last >= 20:
            parts.append(
                join(
                    el(
                        "circle",
                        el("title", f"{line.name}, {i + 1}: {v:.4g}"),
                        cx=x,
                        cy=y,
                        r=3,
                        class_=f"dot {line.style}",
                    )
                    for i, v, x, y in at
                )
            )
    return svg(width, height, label, *parts)


def _epochs(last: int, most: int) -> list[int]:
    step = max(1, math.ceil(ticks(last, most)[1])) if last > most else 1
    return sorted({1, *range(step, last + 1, step)})
