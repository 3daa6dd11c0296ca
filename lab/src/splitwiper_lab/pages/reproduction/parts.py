"""Parts that sections share: coloured verdicts, plain tables, collapsible text, panels of charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from splitwiper_lab.pages.charts import key
from splitwiper_lab.pages.html.markup import Markup, el
from splitwiper_lab.pages.html.parts import figure, num, row_head, scroll, table, td, th, tr
from splitwiper_lab.pages.reproduction.claim import HOLDS, NOT, OPEN, PART

_TONES = {HOLDS: ("exact", "✓"), PART: ("not_comparable", "◐"), NOT: ("mismatch", "✕"), OPEN: ("plain", "–")}
_STYLES = {"γ = 1": 0, "SplitWiper": 0, "Vanilla": 1, "γ = 2": 2, "γ = 3": 3, "U-shaped": 4, "Γp": 5, "no noise": 6}
"""Styles that systems keep on the whole page, by the start of their names."""


def verdict_pill(verdict: str) -> Markup:
    """Render a verdict as a coloured word with a symbol."""
    tone, glyph = _TONES[verdict]
    sign = el("span", glyph, class_="glyph", aria_hidden="true")
    return el("span", sign, verdict, class_=f"pill {tone}")


def tone(verdict: str) -> str:
    """Return the CSS class that gives a card a verdict's colour."""
    return _TONES[verdict][0]


def judged_as(held: bool | None) -> str:
    """Return the verdict for the outcome of a check."""
    return OPEN if held is None else HOLDS if held else NOT


def styles(names: Sequence[str]) -> dict[str, int]:
    """Assign a style to each name: its own if it has one that is free, or the next free one.

    >>> styles(["U-shaped", "γ = 3, ε = 0.1", "γ = 3, ε = 0.2"])
    {'U-shaped': 4, 'γ = 3, ε = 0.1': 3, 'γ = 3, ε = 0.2': 0}
    """
    out: dict[str, int] = {}
    for name in dict.fromkeys(names):
        wanted = next((style for begin, style in _STYLES.items() if name.startswith(begin)), 0)
        free = [style for style in range(8) if style not in out.values()]
        out[name] = wanted if wanted in free or not free else free[0]
    return out


def grid(headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Markup:
    """Render a plain table in its own scrolling box; headings that begin with > are of numbers."""
    right = [heading.startswith(">") for heading in headings]
    head = tr(*(th(h.removeprefix(">"), class_="n" if n else None) for h, n in zip(headings, right, strict=True)))
    body = [
        tr(row_head(row[0]), *(num(cell) if n else td(cell) for cell, n in zip(row[1:], right[1:], strict=True)))
        for row in rows
    ]
    return scroll(table([head], body, caption=caption), caption)


def folded(summary: str, *inside: str) -> Markup:
    """Render text that opens with a click."""
    return el("details", el("summary", summary), *inside)


def panels(drawings: Sequence[tuple[str, Markup]], *, caption: str, names: Mapping[str, int] | None = None) -> Markup:
    """Render charts side by side, each with a title, below one legend."""
    cells = [el("div", el("h4", title), drawing) for title, drawing in drawings]
    legend = [key(names)] if names else []
    return figure(*legend, el("div", *cells, class_="panels"), caption=caption)
