"""The trade-off as a page: accuracy against the strongest attack's recovery, the table, and the recommendation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from splitwiper.formats import NONE, count, percent
from splitwiper_lab.evaluation.recommend import HIDDEN, frontier
from splitwiper_lab.evaluation.tradeoff import Point
from splitwiper_lab.pages.charts import figure, share, svg, tip
from splitwiper_lab.pages.charts.style import CARD, FAINT, INK, SERIES, SOFT
from splitwiper_lab.pages.document import Table, described, document, markdown_table
from splitwiper_lab.theorem import Inequality

_WIDTH, _SLIM, _HEIGHT = 780.0, 380.0, 420.0
HEADER = (
    *("setting", ">accuracy", ">× bytes", ">knowing nothing", ">knowing Q", ">10 rows"),
    *(">forgotten", ">E", ">codes gone"),
)
"""Accuracy; bytes relative to the first setting; rows recovered by the best attack without side information, with the
number of labels, or with ten labelled rows of each; accuracy on the forgotten label; codes; codes of it found by
comparing uploads."""
EXPLAINED = (
    "Each dot is a setting: to the left, the strongest attacker without known rows recovers fewer true labels; above, "
    "clients predict better; larger dots send more bytes. Filled dots are beaten by no other setting in accuracy, "
    f"recovery and bytes at once. The shaded part is recovery of at most {percent(HIDDEN)}."
)
"""An explanation of the plot."""


def table(points: Sequence[Point]) -> Table:
    """Return headings and rows: the cost of each setting, and what attackers with more and more knowledge recover."""
    rows = []
    for point in points:
        rows.append(
            (
                point.setting,
                percent(point.accuracy),
                f"{point.sent / points[0].sent:.2f}",  # the first setting is plain labels
                percent(point.recovered("")),
                percent(point.recovered("Q")),
                percent(point.recovered("aux")),
                percent(point.forgotten),
                count(point.outputs),
                NONE if point.vanished is None else percent(point.vanished),
            )
        )
    return HEADER, rows


def write(
    path: Path, about: Mapping[str, Any], points: Sequence[Point], advice: str, checks: Sequence[Inequality]
) -> None:
    """Write the page."""
    page = document(
        "tradeoff.html",
        title=f"Hiding labels: {about['source']}, {about['model']}",
        conditions=described(about),
        advice=advice,
        plot=plot(points),
        explained=EXPLAINED,
        table=table(points),
        best=unbeaten(points),
        checks=checks,
    )
    path.write_text(page, encoding="utf-8")


def markdown(about: Mapping[str, Any], points: Sequence[Point], advice: str, machines: Sequence[str], page: str) -> str:
    """Return the table and the advice as Markdown."""
    return document(
        "tradeoff.md",
        about=about,
        conditions=described(about),
        machines=machines,
        page=page,
        table=markdown_table(*table(points)),
        advice=advice,
    )


def unbeaten(points: Sequence[Point]) -> list[bool]:
    """Return, for each point, whether no other beats it in accuracy, recovery and bytes at once."""
    best = set(map(id, frontier(points)))  # by identity: two settings may have the same values
    return [id(point) in best for point in points]


def plot(points: Sequence[Point], *, slim: bool = False) -> Markup:
    """Plot accuracy against rows recovered, numbered as in the table of settings; ``slim`` fits a phone."""
    drawing, axes = figure(_SLIM if slim else _WIDTH, _HEIGHT)
    axes.axvspan(0, HIDDEN, color=FAINT, zorder=0)  # where labels count as hidden
    least = min((point.sent for point in points), default=1)
    for point, is_best in zip(points, unbeaten(points), strict=True):
        size = 5 * (point.sent / least) ** 0.5  # the area of a dot, not its width, is in proportion to bytes
        (dot,) = axes.plot(point.recovery, point.accuracy, marker="o", markersize=size, linestyle="none", alpha=0.9)
        dot.set(markerfacecolor=SERIES[0] if is_best else CARD, markeredgecolor=SERIES[0], markeredgewidth=1.2)
        tip(dot, f"{point.setting}: {percent(point.accuracy)} right, {percent(point.recovery)} recovered")
    _number(axes, points, names=not slim)
    axes.set_xlim(-0.02, 1.04)  # room for the dots at both ends, where most of them are
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: share(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: share(round(value, 6))))
    axes.set_xlabel("rows recovered by the strongest attack")
    axes.set_title("accuracy", loc="left", fontsize=12, color=SOFT)
    wide = "for a phone" if slim else "for a screen"
    return svg(drawing, f"Accuracy of each setting against the rows that the strongest attack recovers, {wide}.")


def _number(axes: Axes, points: Sequence[Point], *, names: bool) -> None:
    """Write the numbers of dots to their left, and the name of a dot that is alone where there is room."""
    for position, numbers in _together(points):
        label = ", ".join(map(str, numbers))
        if len(numbers) == 1 and names:
            label += f". {points[numbers[0] - 1].setting}"
        axes.annotate(
            label,
            position,
            xytext=(-11, 0),
            textcoords="offset points",
            horizontalalignment="right",
            verticalalignment="center",
            fontsize=10,
            color=INK,
        )


def _together(points: Sequence[Point]) -> list[tuple[tuple[float, float], list[int]]]:
    """Group the numbers of dots that are close together, so that they share a label."""
    groups: list[tuple[tuple[float, float], list[int]]] = []
    lowest = min((point.accuracy for point in points), default=0.0)
    for number, point in enumerate(points, start=1):
        here = (point.recovery, point.accuracy)
        for there, numbers in groups:
            # about the height of a line, as a part of each axis
            if abs(there[0] - here[0]) < 0.025 and abs(there[1] - here[1]) < 0.04 * (1 - lowest):
                numbers.append(number)
                break
        else:
            groups.append((here, [number]))
    return groups
