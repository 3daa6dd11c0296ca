"""The three kinds of charts: lines over a number, dots for names, bars for groups, and their legend."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.axis import Axis as Ruler
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from splitwiper.report.page import clean
from splitwiper_lab.pages.charts.series import STYLES, Axis, Series, Spot
from splitwiper_lab.pages.charts.style import CARD, DASHES, INK, MARKERS, SERIES, SOFT, figure
from splitwiper_lab.pages.charts.svg import svg, tip

WIDTH, HEIGHT = 380.0, 262.0
"""Fits a phone, and half the width of a full page."""
_PITCH = 25.0
"""The height of a name's line."""
_LETTER = 6.0
"""The width of a letter of a name, at the least."""
_DASHED: dict[str, Any] = {"color": INK, "linewidth": 1.5, "linestyle": (0, (2, 2))}
"""The style of lines at values to compare with."""


def lines(series: Sequence[Series], *, label: str, x: Axis, y: Axis, bands: bool = False) -> Markup:
    """Draw lines over a number, with deviations as whiskers, or as ``bands`` where there are many points."""
    drawing, axes = figure(WIDTH, HEIGHT)
    for one in series:
        colour, dash = SERIES[one.style % STYLES], DASHES[one.style % STYLES]
        for run in one.runs():
            x_values, y_values = zip(*((spot.x, spot.value) for spot in run), strict=True)
            axes.plot(x_values, y_values, color=colour, linestyle=dash, linewidth=1.8)
        if bands:
            _band(axes, one.there, colour)
    positions = []
    for one in series:  # markers lie above all lines
        there = one.there
        for place, spot in enumerate(there):
            positions.append(spot.x)
            if not bands:
                _deviation(axes, spot, one.style)
            if len(there) <= 16 or place == len(there) - 1:  # else the last marker alone names the line
                where = (x.marks or {}).get(spot.x) or x.show(spot.x)
                _marker(axes, spot.x, spot.value, one.style, f"{one.name}, {where}: {_with_deviation(y, spot)}")
    _rule(axes.xaxis, x, positions)
    _rule(axes.yaxis, y, _extent(series))
    axes.set_xlabel(x.title)
    axes.set_title(y.title, loc="left", fontsize=12, color=SOFT)
    return svg(drawing, label)


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
    """Draw a line for each name, from the top, with a dot of each series on it and its deviation over seeds.

    A spot's ``x`` is the index of its name. ``joined`` connects the dots of a name by a bar, so that a difference
    appears as a length; spots that are not joined are left out of it. ``room`` is the width for names, before they take
    a second line, and ``hollow`` names the series whose dots are not filled.
    """
    # the axis and its title take 52, however many names there are
    drawing, axes = figure(WIDTH, 52 + _PITCH * max(1, len(names)))
    if reference is not None:
        axes.axvline(reference, **_DASHED)
    if joined:
        ends: dict[float, list[float]] = {}
        for one in series:
            for spot in one.there:
                if spot.joined:
                    ends.setdefault(spot.x, []).append(spot.value)
        for place, values in ends.items():
            if len(values) > 1:
                axes.plot([min(values), max(values)], [place, place], color=SOFT, linewidth=2)
    for one in series:
        for spot in one.there:
            _deviation(axes, spot, one.style, across=True)
            text = f"{names[int(spot.x)]}, {one.name}: {_with_deviation(x, spot)}"
            _marker(axes, spot.value, spot.x, one.style, text, hollow=one.name in hollow)
    _rule(axes.xaxis, x, _extent(series, reference))
    axes.set_xlabel(x.title)
    axes.set_ylim(max(1, len(names)) - 0.5, -0.5)  # downwards: the first name is at the top
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", pad=9)  # a marker at the end of the axis reaches beyond it
    axes.set_yticks(range(len(names)), [_wrapped(name, room) for name in names], color=INK, linespacing=0.95)
    return svg(drawing, label)


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

    A missing value has no bar; a value of zero has its marker on the axis. A spot's ``x`` is the index of its group;
    ``goals`` are values of some groups to draw a line at.
    """
    drawing, axes = figure(WIDTH, HEIGHT)
    wide = min(0.16, 0.8 / max(1, len(series)))  # a group is one wide, and keeps a fifth of that free
    for number, one in enumerate(series):
        aside = wide * (number - (len(series) - 1) / 2)  # bars stand side by side around the middle of their group
        for spot in one.there:
            middle = Spot(spot.x + aside, spot.y, spot.around)
            axes.bar(middle.x, middle.value, 0.76 * wide, color=SERIES[one.style % STYLES], alpha=0.4)
            _deviation(axes, middle, one.style)
            _marker(
                axes, middle.x, middle.value, one.style, f"{names[int(spot.x)]}, {one.name}: {_with_deviation(y, spot)}"
            )
    extent = [0.0, *_extent(series)]
    for name, goal in (goals or {}).items():
        if name in names:
            at = names.index(name)
            axes.plot([at - 0.45, at + 0.45], [goal, goal], **_DASHED)
            extent.append(goal)
    _rule(axes.yaxis, y, extent)
    axes.grid(visible=False, axis="x")
    axes.set_xlim(-0.5, max(1, len(names)) - 0.5)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel(x)
    axes.set_title(y.title, loc="left", fontsize=12, color=SOFT)
    return svg(drawing, label)


def key(names: Mapping[str, int], *, hollow: Iterable[str] = (), lines: bool = True) -> Markup:
    """Build a legend: a sample of each style, and its name."""
    bare = set(hollow)
    items = Markup()
    for name, style in names.items():
        items += Markup("<li>{}{}</li>").format(_sample(style % STYLES, name in bare, lines, name), name)
    return Markup('<ul class="legend">{}</ul>').format(items)


@cache
def _sample(style: int, hollow: bool, with_line: bool, name: str) -> Markup:
    drawing, axes = figure(36, 14)
    axes.set_axis_off()
    axes.set(xlim=(0, 36), ylim=(0, 14))
    if with_line:
        axes.plot([1, 35], [7, 7], color=SERIES[style], linestyle=DASHES[style], linewidth=1.8)
    _marker(axes, 18, 7, style, "", hollow=hollow)  # no tip: the legend names it
    return svg(drawing, f"sample of {name}")


def _marker(axes: Axes, x: float, y: float, style: int, text: str, *, hollow: bool = False) -> None:
    hollow = hollow or style % STYLES >= 6  # the last two styles have no colour of their own to be filled with
    colour, size = SERIES[style % STYLES], 7.0 if hollow else 6.5
    (marker,) = axes.plot(x, y, marker=MARKERS[style % STYLES], markersize=size, linestyle="none", zorder=3)
    marker.set_markerfacecolor(CARD if hollow else colour)
    marker.set_markeredgecolor(colour if hollow else CARD)
    marker.set_markeredgewidth(1.6 if hollow else 0.8)
    if text:
        tip(marker, text)


def _deviation(axes: Axes, spot: Spot, style: int, *, across: bool = False) -> None:
    """Draw a spot's deviation as a bar with ends; ``across`` if values run along the horizontal axis."""
    if not spot.around:
        return
    x, y, xerr, yerr = (spot.value, spot.x, spot.around, None) if across else (spot.x, spot.value, None, spot.around)
    colour = SERIES[style % STYLES]
    axes.errorbar(x, y, yerr, xerr, fmt="none", ecolor=colour, capsize=2.5, elinewidth=1.2, alpha=0.8)


def _band(axes: Axes, spots: Sequence[Spot], colour: str) -> None:
    if spots:
        low, high = zip(*(spot.ends for spot in spots), strict=True)
        # behind the lines, which stay readable through it
        axes.fill_between([spot.x for spot in spots], low, high, color=colour, alpha=0.16, linewidth=0)


def _rule(ruler: Ruler, axis: Axis, values: Sequence[float]) -> None:
    """Apply the settings of an axis: its scale, its ends and what is marked."""
    found = [*values, *(axis.marks or ())]
    if axis.low is not None:
        found.append(axis.low)
    if axis.high is not None:
        found.append(axis.high)
    positive = [value for value in found if value > 0]
    is_x = ruler is ruler.axes.xaxis  # limits and scale are of the axes, not of the ruler
    limits = ruler.axes.set_xlim if is_x else ruler.axes.set_ylim
    scale = ruler.axes.set_xscale if is_x else ruler.axes.set_yscale
    if axis.log and positive:
        low, high = min(positive), max(positive)
        if len(positive) < len(found):
            # Zero has no place on a logarithmic axis. Below the smallest value it is linear, with zero at its foot.
            scale("symlog", linthresh=low / 2, linscale=0.4)
            limits(-low / 10, high * 1.5)
        else:
            scale("log")  # a share of the range in logarithms, so that no marker is cut
            room = (high / low) ** 0.08 if high > low else 2.0
            limits(low / room, high * room)
    elif found:
        low, high = min(found), max(found)
        room = 0.05 * (high - low) or 0.5 * abs(high) or 1.0
        # an end that was asked for is the end; only a share of the data's range is left free beyond the data
        limits(low if low == axis.low else low - room, high + room)
        ruler.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    if axis.marks is not None:
        ruler.set_major_locator(FixedLocator(list(axis.marks)))
        ruler.set_minor_locator(NullLocator())
    names = dict(axis.marks or {})
    # rounding hides what adding up ticks leaves behind
    ruler.set_major_formatter(FuncFormatter(lambda value, _: names.get(value) or axis.show(round(value, 12))))


def _extent(series: Sequence[Series], reference: float | None = None) -> list[float]:
    """Return the values of all spots, with the ends of their deviations, and the value to compare with."""
    extent = [] if reference is None else [reference]
    for one in series:
        for spot in one.there:
            low, high = spot.ends
            # a deviation below zero would push a logarithmic axis, which has no place for it, down to zero
            extent += [low if low > 0 else spot.value, spot.value, high]
    return extent


def _with_deviation(axis: Axis, spot: Spot) -> str:
    around = f" ± {axis.show(spot.around)}" if spot.around else ""
    return f"{axis.show(spot.value)}{around}"


def _wrapped(name: str, room: float) -> str:
    """Break a long name into two lines; what does not fit into these is cut."""
    return "\n".join(textwrap.wrap(clean(name), max(8, int(room / _LETTER)), max_lines=2, placeholder=" …"))
