"""A picture of the labels of each client: clients across, labels down, the number of rows in every cell.

`drawing` is a self-contained SVG; `page` is an HTML page that sets the same panels side by side if there is room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from splitwiper.formats import count
from splitwiper_lab.pages.drawing.document import PALETTE, document
from splitwiper_lab.pages.drawing.markup import Markup, el, join
from splitwiper_lab.pages.drawing.svg import fit, stroke, svg, text, text_width

STEPS = 5
"""The number of shades of cells."""
BLOCK = 50
"""The most labels in a panel of a page; further labels go into the next panel."""
_LEFT, _ROW, _TALL, _GAP = 110.0, 23.0, 48.0, 3.0
_STYLE = """
.grid-text { font-size: 12px; fill: var(--ink); } .grid-soft { font-size: 11px; fill: var(--soft); }
.grid-head { font-size: 13px; font-weight: 650; fill: var(--ink); }
.grid-mark { font-size: 12px; font-weight: 650; fill: var(--mark); }
.cell.c0 { fill: var(--faint); } .cell.c1 { fill: var(--h1); } .cell.c2 { fill: var(--h2); }
.cell.c3 { fill: var(--h3); } .cell.c4 { fill: var(--h4); } .cell.c5 { fill: var(--h5); }
.on4 { fill: var(--h4-ink); } .on5 { fill: var(--h5-ink); }
.outline { fill: none; stroke: var(--mark); stroke-width: 1.8; }
.volume { fill: var(--second); } .rest { stroke: var(--first-edge); }
"""
_ALONE = """
svg { display: block; margin: 0 auto; width: 100%; height: auto; max-width: MAXIMUM; background: var(--card);
  font-variant-numeric: tabular-nums;
  font-family: -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial, sans-serif; }
.grid-title { font-size: 16px; font-weight: 650; fill: var(--ink); }
"""
_PAGE = """
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: 1.6rem 2.2rem; }
.panels svg { max-width: 34rem; }
@media screen and (max-width: 44rem) { section { padding: .9rem .4rem; } }
"""


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
        """The width of the drawing, which grows with the number of clients, but fits at least five."""
        return _LEFT + self.column * max(len(self.tasks), 5) + 8

    @property
    def column(self) -> float:
        """The width of a client's column, chosen so that its name is legible."""
        return min(max(51.0, *(text_width(name, 12) + 6 for name in self.tasks)), 90.0)


@dataclass(frozen=True)
class _Row:
    """A label, or, with an empty label, the heading of its data set."""

    group: str
    label: str = ""


def drawing(grid: Grid) -> str:
    """Draw the picture as one SVG file: the training panel above the test panel."""
    parts: list[Markup] = []
    y = 0.0
    for words, class_, em, line in ((grid.title, "grid-title", 16.0, 22.0), (grid.note, "grid-soft", 11.0, 16.0)):
        for piece in _wrapped(words, grid.width - 20, em):
            y += line
            parts.append(text(10, y, piece, class_))
    y += 14
    for name in ("train", "test"):
        inside, height = _panel(grid, name, _rows(grid), bars=True)
        parts.append(el("g", inside, transform=f"translate(0 {y:g})"))
        y += height + 16
    style = el("style", Markup(PALETTE + _ALONE.replace("MAXIMUM", f"{1.4 * grid.width:g}px") + _STYLE))
    whole = svg(grid.width, y, f"{grid.title}. {grid.note}", style, *parts)
    size = f'<svg xmlns="http://www.w3.org/2000/svg" width="{grid.width:g}" height="{y:g}" '
    return whole.replace("<svg ", size, 1) + "\n"


def page(grid: Grid) -> str:
    """Render the picture as one HTML page."""
    rows = _rows(grid)
    panels = []
    for name in ("train", "test"):
        for first in range(0, len(rows), BLOCK):
            inside, height = _panel(grid, name, rows[first : first + BLOCK], bars=first == 0)
            panels.append(svg(grid.width, height, f"{_TITLES[name]} per client and label", inside))
    head = el("header", el("h1", grid.title), el("p", grid.note, class_="subtitle"))
    return document(grid.title, head, el("section", el("div", *panels, class_="panels")), style=_STYLE + _PAGE)


_TITLES = {"train": "Training rows", "test": "Test rows"}


def _rows(grid: Grid) -> list[_Row]:
    found = []
    for name, labels in grid.groups.items():
        if len(grid.groups) > 1:
            found.append(_Row(name))
        found.extend(_Row(name, label) for label in labels)
    return found


def _panel(grid: Grid, part: str, rows: Sequence[_Row], *, bars: bool) -> tuple[Markup, float]:
    """Draw a table of cells under the clients' names, with their volumes as bars; also return its height."""
    counts = grid.train if part == "train" else grid.test
    most = max((n for held in counts.values() for n in held.values()), default=0)
    totals = {client: sum(counts[client].values()) for client in grid.tasks}
    parts: list[Markup] = []
    y = 16.0
    if bars:
        parts.append(text(10, y, _TITLES[part], "grid-head"))
        parts.append(text(10, y + 17, f"{count(sum(totals.values()))} in all", "grid-soft"))
        y += 14
        for place, total in enumerate(totals.values()):
            tall = _TALL * total / max([*totals.values(), 1])
            x = _LEFT + grid.column * (place + 0.5)
            parts.append(text(x, y + _TALL - tall - 4, count(total), "grid-soft", anchor="middle"))
            parts.append(el("rect", x=x - 13, y=y + _TALL - tall, width=26.0, height=tall, class_="volume"))
        y += _TALL
        parts.append(stroke(_LEFT, y, _LEFT + grid.column * len(totals), y, "rest"))
        y += 17
    else:
        parts.append(text(10, y, f"{_TITLES[part]}, ctd", "grid-soft"))
    for place, client in enumerate(totals):
        name = fit(client, grid.column - 4, 12)
        parts.append(text(_LEFT + grid.column * (place + 0.5), y, name, "grid-text", anchor="middle", full=client))
    y += 8
    for row in rows:
        parts.append(_line(grid, part, row, y, most) if row.label else text(10, y + 17, row.group, "grid-head"))
        y += _ROW
    return join(parts), y + 4


def _line(grid: Grid, part: str, row: _Row, y: float, most: int) -> Markup:
    """Draw the cells of one label."""
    counts, top = grid.train if part == "train" else grid.test, y
    marked = (row.group, row.label) == grid.marked
    name = fit(row.label, _LEFT - 16, 12)
    parts = [text(10, y + 15, name, "grid-mark" if marked else "grid-text", full=row.label)]
    for place, (client, task) in enumerate(grid.tasks.items()):
        if task != row.group:
            continue
        rows = counts[client].get(row.label, 0)
        shade = 1 + (STEPS * rows - 1) // most if rows else 0
        x, wide, tall = _LEFT + grid.column * place + _GAP / 2, grid.column - _GAP, _ROW - _GAP
        tip = el("title", f"{client}, {row.label}: {count(rows)}")
        if rows and marked:  # a frame with a gap stands out from every shade
            edge = {"x": x + 0.5, "y": y - 0.5, "width": wide - 1, "height": tall + 1}
            parts.append(el("rect", **edge, rx=4.5, class_="outline"))
            x, y, wide, tall = x + 3, y + 2, wide - 6, tall - 4
        parts.append(el("rect", tip, x=x, y=y, width=wide, height=tall, rx=3, class_=f"cell c{shade}"))
        if rows:
            ink = f"grid-text on{shade}" if shade > 3 else "grid-text"
            parts.append(text(x + wide / 2, y + tall / 2 + 4.5, count(rows), ink, anchor="middle"))
        y = top
    return join(parts)


def _wrapped(words: str, width: float, em: float) -> list[str]:
    lines = [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, em) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
