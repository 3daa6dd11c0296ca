"""The trade-off as a page: accuracy against the strongest attack's recovery, the table, and the recommendation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from splitwiper.formats import NONE, count, percent
from splitwiper_lab.evaluation.recommend import HIDDEN, frontier
from splitwiper_lab.evaluation.tradeoff import Point
from splitwiper_lab.pages.drawing.document import document
from splitwiper_lab.pages.drawing.markup import Markup, el, join
from splitwiper_lab.pages.drawing.parts import scroll
from splitwiper_lab.pages.drawing.svg import stroke, svg, text, ticks
from splitwiper_lab.theorem import Inequality

STYLE = """
.dot { fill: var(--first); stroke: var(--first-edge); stroke-width: 1.2; }
.dot.best { fill: var(--second); stroke: var(--second); }
.goal { fill: var(--faint); } .scroll { overflow-x: auto; } .settings td:first-child { min-width: 9.5rem; }
.name { font-size: 11px; fill: var(--ink); }
"""
"""The style of the plot, added to a page's style sheet."""
_WIDTH, _SLIM, _HEIGHT, _LEFT, _TOP, _BOTTOM = 780.0, 380.0, 420.0, 62.0, 16.0, 366.0
HEADER = ("setting", ">accuracy", ">× bytes", ">told nothing", ">told Q", ">10 rows", ">forgotten", ">E", ">codes gone")
"""Accuracy; bytes relative to the first setting; rows recovered by the best attack without side information, with the
number of labels, or with ten labelled rows of each; accuracy on the forgotten label; codes; codes of it found by
comparing uploads."""


EXPLAINED = (
    "Each dot is a setting: to the left, the strongest attacker without known rows recovers fewer true labels; above, "
    "clients predict better; larger dots send more bytes. Filled dots are beaten by no other setting in accuracy, "
    f"recovery and bytes at once. The shaded part is recovery of at most {percent(HIDDEN)}."
)
"""An explanation of the plot."""


def table(points: Sequence[Point]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and rows: the cost of each setting, and what attackers with more and more knowledge recover."""
    base = points[0].sent if points else 1
    rows = [
        (
            p.setting,
            percent(p.accuracy),
            f"{p.sent / base:.2f}",
            *(percent(p.recovered(knows)) for knows in ("", "Q", "aux")),
            percent(p.forgotten),
            count(p.outputs),
            NONE if p.vanished is None else percent(p.vanished),
        )
        for p in points
    ]
    return HEADER, rows


def write(
    path: Path, about: Mapping[str, Any], points: Sequence[Point], advice: str, checks: Sequence[Inequality]
) -> None:
    """Write the page."""
    title = f"Hiding labels: {about['source']}, {about['model']}"
    parts = [
        el("h1", title),
        el("p", f"{_told(about)}. Each setting learned, was attacked with the whole suite, and forgot a class."),
        el("section", el("h2", "What to take"), el("p", advice)),
        el(
            "section",
            el("h2", "Accuracy against rows recovered"),
            plot(points),
            el("p", EXPLAINED),
        ),
        el("section", el("h2", "Every setting"), settings_table(points)),
        el("section", el("h2", "Theorem 1 in numbers"), _theorem(checks)),
    ]
    path.write_text(document(title, *(join(("\n", part)) for part in parts), "\n", style=STYLE), encoding="utf-8")


def markdown(about: Mapping[str, Any], points: Sequence[Point], advice: str, machines: Sequence[str], page: str) -> str:
    """Return the table and the advice as Markdown."""
    headings, rows = table(points)
    lines = [
        f"# Hiding labels: {about['source']}, {about['model']}",
        "",
        f"Written by `splitwiper tradeoff` from the JSON lines beside it; [the page]({page}) has the plot.",
        f"{_told(about)}. Measured on {'; '.join(machines)}.",
        "",
        "| " + " | ".join(h.removeprefix(">") for h in headings) + " |",
        "|---|" + "---:|" * (len(headings) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        "Rows recovered by the strongest attack: told nothing, also told the number of labels Q, also told ten rows",
        "of each label. Forgotten: accuracy on the forgotten label after forgetting. Codes gone: of its codes, those",
        "found by a server that kept the erased upload.",
        "",
        advice,
        "",
    ]
    return "\n".join(lines)


def _told(about: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in about.items() if value not in (None, False))


def plot(points: Sequence[Point], *, slim: bool = False) -> Markup:
    """Plot accuracy against rows recovered, numbered as in `settings_table`.

    Args:
        points: the settings.
        slim: draw it half as wide, for a phone.
    """
    width = _SLIM if slim else _WIDTH
    right = width - 28
    low = min((p.accuracy for p in points), default=0.0)
    base = max(0.0, round(low - 0.05, 1))

    def x(value: float) -> float:
        return _LEFT + value * (right - _LEFT)

    def y(value: float) -> float:
        return _BOTTOM - (value - base) / (1 - base) * (_BOTTOM - _TOP)

    parts = [el("rect", x=_LEFT, y=_TOP, width=x(HIDDEN) - _LEFT, height=_BOTTOM - _TOP, class_="goal")]
    for tick in ticks(1.0):
        parts.append(stroke(x(tick), _TOP, x(tick), _BOTTOM, "grid"))
        parts.append(text(x(tick), _BOTTOM + 18, f"{100 * tick:.0f}\xa0%", "tick", anchor="middle"))
    for tick in ticks(1 - base):
        if base + tick <= 1 + 1e-9:
            parts.append(stroke(_LEFT, y(base + tick), right, y(base + tick), "grid"))
            parts.append(text(_LEFT - 8, y(base + tick) + 4, f"{100 * (base + tick):.0f}\xa0%", "tick", anchor="end"))
    best = set(map(id, frontier(points)))
    base_bytes = min((p.sent for p in points), default=1)
    for p in points:
        tip = f"{p.setting}: {percent(p.accuracy)} right, {percent(p.recovery)} recovered"
        kind = "dot best" if id(p) in best else "dot"
        size = round(4 * (p.sent / base_bytes) ** 0.5, 1)
        parts.append(el("circle", el("title", tip), cx=x(p.recovery), cy=y(p.accuracy), r=size, class_=kind))
    for (across, up), numbers in _together([(x(p.recovery), y(p.accuracy)) for p in points]):
        told = ", ".join(map(str, numbers))
        if len(numbers) == 1 and not slim:  # there is room for its name
            told += f". {points[numbers[0] - 1].setting}"
        parts.append(text(across - 12, up + 4, told, "name", anchor="end"))
    words = "rows recovered by the strongest attack"
    parts.append(text((_LEFT + right) / 2, _HEIGHT - 14, words, "tick", anchor="middle"))
    parts.append(text(_LEFT + 8, _TOP + 14, "accuracy", "tick"))
    return svg(width, _HEIGHT, "Accuracy of each setting against the rows that the strongest attack recovers.", *parts)


def _together(places: Sequence[tuple[float, float]]) -> list[tuple[tuple[float, float], list[int]]]:
    """Group the numbers of dots that are close together, so that they share a label."""
    groups: list[tuple[tuple[float, float], list[int]]] = []
    for number, (across, up) in enumerate(places, start=1):
        near = next((g for g in groups if abs(g[0][0] - across) < 14 and abs(g[0][1] - up) < 14), None)
        if near is None:
            groups.append(((across, up), [number]))
        else:
            near[1].append(number)
    return groups


def settings_table(points: Sequence[Point]) -> Markup:
    """Render the rows of `table`, numbered, and mark the settings that no other beats."""
    headings, rows = table(points)
    best = set(map(id, frontier(points)))
    body = [
        el(
            "tr",
            el("td", f"{n}. {row[0]}" + (" ●" if id(p) in best else "")),
            *(el("td", c, class_="n") for c in row[1:]),
        )
        for n, (p, row) in enumerate(zip(points, rows, strict=True), start=1)
    ]
    head = el("tr", *(el("th", h.removeprefix(">"), class_="n" if h.startswith(">") else None) for h in headings))
    inside = el("table", el("thead", head), el("tbody", *body), class_="settings")
    return scroll(inside, "Every setting")


def _theorem(checks: Sequence[Inequality]) -> Markup:
    rows = [
        el(
            "tr",
            el("td", c.case),
            *(el("td", f"{v:.2f}", class_="n") for v in (c.epsilon, c.supremum, c.median)),
            el("td", percent(c.outside), class_="n"),
            el("td", "holds" if c.step_holds else "fails"),
        )
        for c in checks
    ]
    titles = ("case", "claimed", "largest possible", "median draw", "draws beyond", "the step")
    head = el("tr", *(el("th", t, class_="n" if 0 < i < 5 else None) for i, t in enumerate(titles)))
    note = el("p", "Logarithms of the ratio of posteriors that the paper's proof bounds by ε, for two noisy copies.")
    return join((note, el("div", el("table", el("thead", head), el("tbody", *rows)), class_="scroll")))
