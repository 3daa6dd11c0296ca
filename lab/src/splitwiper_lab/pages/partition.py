"""A picture of the labels of each client: clients across, labels down, the number of rows in every cell.

`drawing` is one figure, as SVG, PDF or PNG; `page` is an HTML page that sets the same panels side by side if there is
room.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from splitwiper.formats import count
from splitwiper.report.page import clean
from splitwiper_lab.pages.charts import standalone, svg, tip
from splitwiper_lab.pages.charts.style import CARD, FAINT, HEAT, HEAT_INK, INK, SERIES, SOFT
from splitwiper_lab.pages.document import document

BLOCK = 50
"""The most labels in a panel of a page; further labels go into the next panel."""
_LEFT, _COLUMN, _ROW, _HEAD, _BARS = 110.0, 62.0, 23.0, 34.0, 60.0
_MARK = "#a84300"
_LETTERS = 11
"""Letters of a client's name that fit above a column."""
_TITLES = {"train": "Training rows", "test": "Test rows"}


@dataclass(frozen=True)
class Grid:
    """The content of the picture. Counts are by client, then by label."""

    title: str
    note: str
    groups: Mapping[str, Sequence[str]]
    """Labels by data set."""
    tasks: Mapping[str, str]
    """The data set of every client, in order."""
    train: Mapping[str, Mapping[str, int]]
    test: Mapping[str, Mapping[str, int]]
    marked: tuple[str, str] = ("", "")
    """The data set and the label to highlight."""

    @property
    def width(self) -> float:
        """The width of a panel, which grows with the number of clients, but fits at least five."""
        return _LEFT + _COLUMN * max(len(self.tasks), 5) + 8

    def counts(self, part: str) -> Mapping[str, Mapping[str, int]]:
        """Return the counts of training or test rows."""
        return self.train if part == "train" else self.test


@dataclass(frozen=True)
class GridRow:
    """A label, or, with an empty label, the heading of its data set."""

    group: str
    label: str = ""


def drawing(grid: Grid, suffix: str) -> bytes:
    """Draw the picture as one .svg, .pdf or .png file: the training panel above the test panel."""
    rows = _rows(grid)
    note = textwrap.wrap(grid.note, int(grid.width / 5.6))
    head = 34 + 14 * len(note)
    each = _height(rows, bars=True)
    figure = _canvas(grid.width, head + 2 * each)
    top = _panel_axes(figure, grid, head, 0)
    top.text(10, 20, grid.title, fontsize=14, fontweight="bold", color=INK)
    top.text(10, 38, "\n".join(note), fontsize=10, color=SOFT, verticalalignment="top")
    for number, part in enumerate(("train", "test")):
        _panel(_panel_axes(figure, grid, each, head + number * each), grid, part, rows, bars=True)
    if suffix == ".svg":
        # a drawing needs only the beginning of the page's style sheet, which names the colours
        palette = document("style.css").partition("\n* {")[0]
        return standalone(svg(figure, f"{grid.title}. {grid.note}"), palette + document("charts.css")).encode()
    figure.set_facecolor(CARD)  # as a file of its own it has no page behind it
    out = io.BytesIO()
    with mpl.rc_context({"pdf.fonttype": 42}):  # fonts as outlines that other programs can search and edit
        figure.savefig(out, format=suffix.removeprefix("."), dpi=180)
    return out.getvalue()


def page(grid: Grid) -> str:
    """Render the picture as one HTML page."""
    rows = _rows(grid)
    panels = []
    for part, title in _TITLES.items():
        for first in range(0, len(rows), BLOCK):  # a hundred labels below each other would not fit a screen
            block = rows[first : first + BLOCK]
            figure = _canvas(grid.width, _height(block, bars=first == 0))
            axes = _panel_axes(figure, grid, _height(block, bars=first == 0), 0)
            _panel(axes, grid, part, block, bars=first == 0)
            panels.append(svg(figure, f"{title} per client and label, from label {first + 1}"))
    return document("partition.html", title=grid.title, grid=grid, panels=panels)


def _rows(grid: Grid) -> list[GridRow]:
    found = []
    for name, labels in grid.groups.items():
        if len(grid.groups) > 1:  # a heading for each data set, where there are several
            found.append(GridRow(name))
        for label in labels:
            found.append(GridRow(name, label))
    return found


def _height(rows: Sequence[GridRow], *, bars: bool) -> float:
    return _HEAD + (_BARS if bars else 0.0) + _ROW * len(rows) + 6


def _canvas(width: float, height: float) -> Figure:
    return Figure(figsize=(width / 72, height / 72), facecolor="none")


def _panel_axes(figure: Figure, grid: Grid, height: float, top: float) -> Axes:
    """Return axes in pixels, downwards, for a strip of the figure."""
    whole = figure.get_figheight() * 72  # inches to pixels
    axes = figure.add_axes((0.0, 1 - (top + height) / whole, 1.0, height / whole))
    axes.set(xlim=(0, grid.width), ylim=(height, 0))  # downwards, as rows are read
    axes.set_axis_off()
    return axes


def _panel(axes: Axes, grid: Grid, part: str, rows: Sequence[GridRow], *, bars: bool) -> None:
    """Draw a table of cells under the clients' names, with each client's volume as a bar if ``bars``."""
    most = 0
    for held in grid.counts(part).values():
        most = max(most, *held.values(), 0)
    y = _HEAD
    if bars:
        _volumes(axes, grid, part)
        y += _BARS
    else:
        axes.text(10, 16, f"{_TITLES[part]}, continued", fontsize=10, color=SOFT)
    for place, client in enumerate(grid.tasks):
        middle = _LEFT + _COLUMN * (place + 0.5)
        name = axes.text(middle, y - 6, _short(client, _LETTERS), fontsize=10, color=INK, horizontalalignment="center")
        tip(name, client)
    for row in rows:
        if row.label:
            _line(axes, grid, part, row, y, most)
        else:
            axes.text(10, y + 16, row.group, fontsize=11, fontweight="bold", color=INK)
        y += _ROW


def _volumes(axes: Axes, grid: Grid, part: str) -> None:
    """Draw how many rows each client has in all."""
    totals = [sum(grid.counts(part)[client].values()) for client in grid.tasks]
    axes.text(10, 16, _TITLES[part], fontsize=11, fontweight="bold", color=INK)
    axes.text(10, 32, f"{count(sum(totals))} in all", fontsize=10, color=SOFT)
    foot, tall = _HEAD + _BARS - 22, _BARS - 16
    for place, total in enumerate(totals):
        middle = _LEFT + _COLUMN * (place + 0.5)
        height = tall * total / max([*totals, 1])  # in proportion to the largest client; no rows, no bar
        axes.bar(middle, -height, 26, bottom=foot, color=SERIES[0])
        axes.text(middle, foot - height - 4, count(total), fontsize=9, color=SOFT, horizontalalignment="center")


def _line(axes: Axes, grid: Grid, part: str, row: GridRow, y: float, most: int) -> None:
    """Draw the cells of one label."""
    marked = (row.group, row.label) == grid.marked
    weight, ink = ("bold", _MARK) if marked else ("normal", INK)
    name = axes.text(10, y + 15, _short(row.label, 16), fontsize=10, fontweight=weight, color=ink)
    tip(name, row.label)
    for place, (client, task) in enumerate(grid.tasks.items()):
        if task != row.group:
            continue  # a client with another task has no cell here
        rows = grid.counts(part)[client].get(row.label, 0)
        # rounded so that any row at all gets a shade, and the most rows the last one
        shade = (len(HEAT) * rows - 1) // most if rows else -1
        left = _LEFT + _COLUMN * place + 2
        cell = FancyBboxPatch(
            (left + 2, y + 2),
            _COLUMN - 8,
            _ROW - 7,
            boxstyle="round,pad=2,rounding_size=3",
            facecolor=HEAT[shade] if rows else FAINT,
            edgecolor=_MARK if marked and rows else "none",
            linewidth=1.8,
        )
        tip(cell, f"{client}, {row.label}: {count(rows)}")
        axes.add_patch(cell)
        if rows:
            middle = left + _COLUMN / 2 - 2
            axes.text(middle, y + 14, count(rows), fontsize=9.5, color=HEAT_INK[shade], horizontalalignment="center")


def _short(name: str, letters: int) -> str:
    name = clean(name)
    return name if len(name) <= letters else name[: letters - 1] + "…"
