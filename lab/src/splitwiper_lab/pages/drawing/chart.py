"""Charts of several series: lines with bars or bands for the deviation over seeds, over linear or logarithmic axes.

Series differ by colour, marker and dash at once, so that no chart needs colour to be read. Colours are Okabe and Ito's,
from the style sheet below; they follow light, dark and print. `dots` has the charts of names instead of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from splitwiper_lab.pages.drawing.axes import Axis, Scale
from splitwiper_lab.pages.drawing.markup import Markup, el
from splitwiper_lab.pages.drawing.svg import stroke, svg, text

STYLES = 8
"""The number of styles that can be distinguished."""
STYLE = """
:root { --s0: #0072b2; --s1: #c04f00; --s2: #00805e; --s3: #a0447a; --s4: #946300; --s5: #2b8cc4; --s6: #333a41;
  --s7: #77818b; }
@media screen and (prefers-color-scheme: dark) {
  :root { --s0: #56b4e9; --s1: #ff8f4d; --s2: #2cc79a; --s3: #e8a0c8; --s4: #f0bd45; --s5: #a6d8f5; --s6: #e8ebee;
    --s7: #98a3af; }
}
.c0 { --c: var(--s0); } .c1 { --c: var(--s1); } .c2 { --c: var(--s2); } .c3 { --c: var(--s3); }
.c4 { --c: var(--s4); } .c5 { --c: var(--s5); } .c6 { --c: var(--s6); } .c7 { --c: var(--s7); }
.run { fill: none; stroke: var(--c); stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
.spot { fill: var(--c); stroke: var(--card); stroke-width: 1; }
.spot.hollow { fill: var(--card); stroke: var(--c); stroke-width: 2; }
.whisker { stroke: var(--c); stroke-width: 1.4; opacity: .75; }
.around { fill: var(--c); opacity: .16; }
.beam { fill: var(--c); opacity: .4; }
.goal-line { stroke: var(--ink); stroke-width: 1.6; stroke-dasharray: 3 3; }
svg .axis-title { fill: var(--soft); font-size: 12.5px; } svg .axis-name { fill: var(--ink); font-size: 12.5px; }
svg .remark-line { fill: var(--ink); font-size: 11.5px; font-style: italic; }
.panels { display: grid; grid-template-columns: 1fr 1fr; gap: 1.2rem 2.2rem; align-items: start; margin-top: .6rem; }
.panels h4, .panel h4 { font-size: .9rem; font-weight: 600; margin: 0 0 .3rem; }
.legend li { display: flex; align-items: center; }
svg.sample { display: inline-block; flex: none; width: 36px; height: 14px; margin-right: .5em; }
@media screen and (max-width: 44rem) { .panels { grid-template-columns: 1fr; } }
"""
"""Style sheet that pages with charts add to their own."""
DASHES = ("", "8 4", "2 4", "10 3 2 3", "5 3", "1 4", "14 4", "6 2 1 2 1 2")
_CROSS = (
    *((-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4)),
    *((0.4, 1.2), (-0.4, 1.2), (-0.4, 0.4), (-1.2, 0.4), (-1.2, -0.4), (-0.4, -0.4)),
)
WIDTH, HEIGHT = 380.0, 262.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 12.0, 24.0, 44.0


@dataclass(frozen=True)
class Spot:
    """A point: position, value, deviation over seeds, and whether a line leads to it from the previous one."""

    x: float
    y: float | None
    around: float | None = None
    joined: bool = True

    @property
    def is_there(self) -> bool:
        """Whether it can be drawn."""
        return self.y is not None and math.isfinite(self.y) and math.isfinite(self.x)


@dataclass(frozen=True)
class Series:
    """Points of one series; ``style`` selects colour, marker and dash."""

    name: str
    spots: tuple[Spot, ...]
    style: int


def marker(x: float, y: float, style: int, tip: str = "", *, hollow: bool = False, size: float = 4.6) -> Markup:
    """Draw a series' marker: circle, square, triangles, diamond or cross; the last two are hollow."""
    kind, turn = f"spot c{style % STYLES}", style % STYLES
    hollow = hollow or turn >= 6
    inside = [el("title", tip)] if tip else []
    css = f"{kind} hollow" if hollow else kind
    if turn in (0, 6):
        return el("circle", *inside, cx=x, cy=y, r=size, class_=css)
    corners = {
        1: ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        2: ((0, -1.2), (1.15, 0.9), (-1.15, 0.9)),
        3: ((0, -1.35), (1.2, 0), (0, 1.35), (-1.2, 0)),
        4: ((0, 1.2), (1.15, -0.9), (-1.15, -0.9)),
        5: _CROSS,
        7: ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    }[turn]
    path = "M" + "L".join(f"{x + size * dx:.1f} {y + size * dy:.1f}" for dx, dy in corners) + "Z"
    return el("path", *inside, d=path, class_=css)


def key(names: Mapping[str, int], *, hollow: Iterable[str] = (), lines: bool = True) -> Markup:
    """Draw a legend: a sample of each style, and its name."""
    bare = set(hollow)
    return el(
        "ul",
        *(
            el(
                "li",
                el(
                    "svg",
                    *([_run("M1 7L35 7", style)] if lines else []),
                    marker(18, 7, style, hollow=name in bare),
                    viewBox="0 0 36 14",
                    class_="sample",
                    aria_hidden="true",
                ),
                name,
            )
            for name, style in names.items()
        ),
        class_="legend",
    )


def _run(path: str, style: int) -> Markup:
    dash = DASHES[style % STYLES] or None
    return el("path", d=path, class_=f"run c{style % STYLES}", stroke_dasharray=dash)


def lines(
    series: Sequence[Series],
    *,
    label: str,
    x: Axis,
    y: Axis,
    bands: bool = False,
    reference: float | None = None,
) -> Markup:
    """Draw lines over a number, 380 wide: fits a phone and half the width of a full page.

    Args:
        series: at most `STYLES` can be distinguished.
        label: describes the chart for readers who cannot see it.
        x: the horizontal axis.
        y: the vertical axis.
        bands: show deviations as bands, for many points; bars otherwise.
        reference: a value to draw a line at.
    """
    there = [[spot for spot in one.spots if spot.is_there] for one in series]
    values = [v for spots in there for s in spots for v in _ends(s)] + ([] if reference is None else [reference])
    across = Scale(x, [s.x for spots in there for s in spots], _LEFT + 10, WIDTH - _RIGHT - 10)
    up = Scale(y, values, HEIGHT - _BOTTOM, _TOP)
    parts = frame(across, up)
    if reference is not None:
        parts.append(stroke(_LEFT, up.at(reference), WIDTH - _RIGHT, up.at(reference), "goal-line"))
    for one, spots in zip(series, there, strict=True):
        if bands and len(spots) > 1:
            parts.append(_band(spots, one.style, across, up))
        path = ""
        for spot in one.spots:
            if spot.is_there:
                path += f"{'L' if path and spot.joined and not path.endswith('|') else 'M'}"
                path = path.replace("|", "") + f"{across.at(spot.x):.1f} {up.at(spot.y or 0.0):.1f}"
            elif path:
                path += "|"  # a gap
        parts.append(_run(path.replace("|", ""), one.style) if path else Markup(""))
    for one, spots in zip(series, there, strict=True):
        few = len(spots) <= 16
        for place, spot in enumerate(spots):
            at = across.at(spot.x), up.at(spot.y or 0.0)
            if not bands:
                parts.append(whisker(spot, at[0], up, one.style))
            if few or place == len(spots) - 1:
                tip = f"{one.name}, {_named(x, spot.x)}: {_told(y, spot)}"
                parts.append(marker(*at, one.style, tip))
    return svg(WIDTH, HEIGHT, label, *parts)


def frame(across: Scale, up: Scale) -> list[Markup]:
    """Draw the grid, the axes and their titles."""
    left, right, floor = _LEFT, WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = []
    for value, name in up.ticks():
        y = up.at(value)
        parts.append(stroke(left, y, right, y, "axis" if abs(y - floor) < 0.5 else "grid"))
        parts.append(text(left - 7, y + 4, name, "tick", anchor="end"))
    for value, name in across.ticks():
        x = across.at(value)
        parts.append(stroke(x, floor, x, floor + 4, "axis"))
        parts.append(text(x, floor + 18, name, "tick", anchor="middle"))
    parts.append(text(6, 12, up.axis.title, "axis-title"))
    parts.append(text((left + right) / 2, HEIGHT - 7, across.axis.title, "axis-title", anchor="middle"))
    return parts


def whisker(spot: Spot, x: float, up: Scale, style: int) -> Markup:
    """Draw the deviation over seeds as an upright bar; nothing if there is none."""
    if not spot.around or spot.y is None:
        return Markup("")
    low, high = up.at(spot.y - spot.around), up.at(spot.y + spot.around)
    ends = (stroke(x - 3, y, x + 3, y, f"whisker c{style % STYLES}") for y in (low, high))
    return Markup(stroke(x, low, x, high, f"whisker c{style % STYLES}") + "".join(ends))


def _band(spots: Sequence[Spot], style: int, across: Scale, up: Scale) -> Markup:
    upper = [(s.x, (s.y or 0.0) + (s.around or 0.0)) for s in spots]
    lower = [(s.x, (s.y or 0.0) - (s.around or 0.0)) for s in reversed(spots)]
    path = "L".join(f"{across.at(x):.1f} {up.at(y):.1f}" for x, y in (*upper, *lower))
    return el("path", d=f"M{path}Z", class_=f"around c{style % STYLES}")


def _ends(spot: Spot) -> tuple[float, ...]:
    y, around = spot.y or 0.0, spot.around or 0.0
    return (y, y + around) if y - around <= 0 else (y - around, y + around)  # a logarithmic axis needs values > 0


def _named(axis: Axis, value: float) -> str:
    return (axis.marks or {}).get(value) or axis.show(value)


def _told(axis: Axis, spot: Spot) -> str:
    around = f" ± {axis.show(spot.around)}" if spot.around else ""
    return f"{axis.show(spot.y or 0.0)}{around}"
