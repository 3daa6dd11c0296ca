"""Charts over names: a line of dots for each name, and groups of vertical bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from splitwiper_lab.pages.drawing.axes import Axis, Scale
from splitwiper_lab.pages.drawing.chart import HEIGHT, STYLES, WIDTH, Series, Spot, frame, marker, whisker
from splitwiper_lab.pages.drawing.markup import Markup, el
from splitwiper_lab.pages.drawing.svg import fit, stroke, svg, text

_RIGHT, _PITCH, _HEAD, _FOOT = 16.0, 25.0, 10.0, 42.0


def dots(
    names: Sequence[str],
    series: Sequence[Series],
    *,
    label: str,
    x: Axis,
    reference: float | None = None,
    joined: bool = False,
    hollow: Sequence[str] = (),
    room: float = 116.0,
) -> Markup:
    """Draw a line for each name, with a dot of each series on it and its deviation over seeds.

    Args:
        names: the names, from top to bottom.
        series: the series; a spot's ``x`` is the index of its name.
        label: a description of the chart.
        x: the axis of values.
        reference: a value to draw a line at.
        joined: connect the dots of a name by a bar, so that a difference appears as a length; spots with ``joined``
            False are left out.
        hollow: names of series whose dots are not filled.
        room: the width for names; longer ones are truncated.
    """
    floor, right = _HEAD + _PITCH * max(1, len(names)), WIDTH - _RIGHT
    there = [(one, spot) for one in series for spot in one.spots if spot.is_there]
    values = [s.y or 0.0 for _, s in there]
    values += [(s.y or 0.0) + sign * s.around for _, s in there if s.around for sign in (-1, 1)]
    across = Scale(x, values + ([] if reference is None else [reference]), room + 6, right - 6)
    parts = []
    for value, name in across.ticks():
        parts.append(stroke(across.at(value), _HEAD, across.at(value), floor, "grid"))
        parts.append(text(across.at(value), floor + 16, name, "tick", anchor="middle"))
    parts.append(stroke(room, floor, right, floor, "axis"))
    parts.append(text((room + right) / 2, floor + 36, x.title, "axis-title", anchor="middle"))
    if reference is not None:
        parts.append(stroke(across.at(reference), _HEAD - 4, across.at(reference), floor, "goal-line"))
    for place, name in enumerate(names):
        y = _HEAD + _PITCH * (place + 0.5)
        parts.append(text(room - 8, y + 4.5, fit(name, room - 10, 12.5), "axis-name", anchor="end", full=name))
        here = [across.at(s.y or 0.0) for _, s in there if s.x == place and s.joined]
        if joined and len(here) > 1:
            parts.append(el("line", x1=min(here), y1=y, x2=max(here), y2=y, class_="axis", stroke_width=2))
        for one, spot in there:
            if spot.x == place:
                parts.extend(_dot(one, spot, across, y, name, hollow=one.name in hollow))
    return svg(WIDTH, floor + _FOOT, label, *parts)


def _dot(one: Series, spot: Spot, across: Scale, y: float, name: str, *, hollow: bool) -> list[Markup]:
    value, around, css = spot.y or 0.0, spot.around or 0.0, f"whisker c{one.style % STYLES}"
    told = across.axis.show(value) + (f" ± {across.axis.show(around)}" if around else "")
    out = []
    if around:
        low, high = across.at(value - around), across.at(value + around)
        out.append(stroke(low, y, high, y, css))
        out += [stroke(at, y - 3, at, y + 3, css) for at in (low, high)]
    out.append(
        marker(
            across.at(value), y, one.style, f"{name}, {one.name}: {told}", hollow=hollow, size=5.2 if hollow else 4.4
        )
    )
    return out


def bars(
    names: Sequence[str],
    series: Sequence[Series],
    *,
    label: str,
    x: str,
    y: Axis,
    goals: Mapping[str, float] | None = None,
) -> Markup:
    """Draw groups of bars, one group for each name and one bar for each series, with its marker on top.

    A missing value has no bar; a value of zero has its marker on the axis.

    Args:
        names: the groups, from the left.
        series: the series; a spot's ``x`` is the index of its group.
        label: a description of the chart.
        x: the title of the groups' axis.
        y: the vertical axis.
        goals: by group, a value to draw a line at.
    """
    marks = {float(place): name for place, name in enumerate(names)}
    there = [(one, spot) for one in series for spot in one.spots if spot.is_there]
    values = [v for _, s in there for v in (s.y or 0.0, (s.y or 0.0) + (s.around or 0.0))]
    values += (goals or {}).values()
    up = Scale(y, [0.0, *values], HEIGHT - 44, 24)
    half = (WIDTH - 64) / max(1, len(names)) / 2
    across = Scale(Axis(x, low=0.0, high=float(max(1, len(names) - 1)), marks=marks), (), 52 + half, WIDTH - 12 - half)
    if len(names) == 1:
        across = Scale(Axis(x, low=-1.0, high=1.0, marks=marks), (), 52, WIDTH - 12)
    parts = frame(across, up)
    wide = min(26.0, 1.7 * half / max(1, len(series)))
    for name, goal in (goals or {}).items():
        if name in names:
            middle = across.at(float(names.index(name)))
            parts.append(stroke(middle - half + 3, up.at(goal), middle + half - 3, up.at(goal), "goal-line"))
    for number, one in enumerate(series):
        for spot in (s for s in one.spots if s.is_there):
            middle = across.at(spot.x) + wide * (number - (len(series) - 1) / 2)
            parts += _bar(one, spot, middle, wide, up, names[int(spot.x)])
    return svg(WIDTH, HEIGHT, label, *parts)


def _bar(one: Series, spot: Spot, middle: float, wide: float, up: Scale, name: str) -> list[Markup]:
    value, show = spot.y or 0.0, up.axis.show
    top, css = up.at(value), f"beam c{one.style % STYLES}"
    tip = f"{name}, {one.name}: {show(value)}" + (f" ± {show(spot.around)}" if spot.around else "")
    tall = max(0.0, up.at(0.0) - top)
    return [
        el("rect", x=middle - 0.38 * wide, y=top, width=0.76 * wide, height=tall, class_=css),
        whisker(spot, middle, up, one.style),
        marker(middle, top, one.style, tip),
    ]
