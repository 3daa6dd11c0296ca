"""The trade-off as a page: accuracy against the strongest attack's recovery, the table, and the recommendation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from splitwiper.formats import NONE, count, percent
from splitwiper_lab.evaluation.recommend import HIDDEN, frontier
from splitwiper_lab.evaluation.tradeoff import Point
from splitwiper_lab.pages import charts
from splitwiper_lab.pages.charts import figure, share, svg, tip
from splitwiper_lab.pages.charts.style import CARD, FAINT, INK, SERIES, SOFT
from splitwiper_lab.pages.html.document import document
from splitwiper_lab.pages.html.markup import Markup, el, join
from splitwiper_lab.pages.html.parts import scroll
from splitwiper_lab.theorem import Inequality

STYLE = """
.scroll { overflow-x: auto; } .settings td:first-child { min-width: 9.5rem; }
"""
"""The style of the table, added to a page's style sheet."""
_WIDTH, _SLIM, _HEIGHT = 780.0, 380.0, 420.0
HEADER = (
    "setting",
    ">accuracy",
    ">× bytes",
    ">knowing nothing",
    ">knowing Q",
    ">10 rows",
    ">forgotten",
    ">E",
    ">codes gone",
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
        el("section", el("h2", "Recommendation"), el("p", advice)),
        el(
            "section",
            el("h2", "Accuracy against rows recovered"),
            plot(points),
            el("p", EXPLAINED),
        ),
        el("section", el("h2", "Every setting"), settings_table(points)),
        el("section", el("h2", "Theorem 1 in numbers"), _theorem(checks)),
    ]
    path.write_text(
        document(title, *(join(("\n", part)) for part in parts), "\n", style=charts.STYLE + STYLE), encoding="utf-8"
    )


def markdown(about: Mapping[str, Any], points: Sequence[Point], advice: str, machines: Sequence[str], page: str) -> str:
    """Return the table and the advice as Markdown."""
    headings, rows = table(points)
    lines = [
        f"# Hiding labels: {about['source']}, {about['model']}",
        "",
        f"Written by `splitwiper tradeoff` from the JSON lines in this folder; [the page]({page}) has the plot.",
        f"{_told(about)}. Measured on {'; '.join(machines)}.",
        "",
        "| " + " | ".join(h.removeprefix(">") for h in headings) + " |",
        "|---|" + "---:|" * (len(headings) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        "Rows recovered by the strongest attack: knowing nothing, also knowing the number of labels Q, also ten rows",
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
    drawing, axes = figure(_SLIM if slim else _WIDTH, _HEIGHT)
    axes.axvspan(0, HIDDEN, color=FAINT, zorder=0)
    best = frontier(points)
    least = min((point.sent for point in points), default=1)
    for point in points:
        size = 5 * (point.sent / least) ** 0.5
        (dot,) = axes.plot(point.recovery, point.accuracy, marker="o", markersize=size, linestyle="none", alpha=0.9)
        is_best = any(point is other for other in best)
        dot.set(markerfacecolor=SERIES[0] if is_best else CARD, markeredgecolor=SERIES[0], markeredgewidth=1.2)
        tip(dot, f"{point.setting}: {percent(point.accuracy)} right, {percent(point.recovery)} recovered")
    _number(axes, points, names=not slim)
    axes.set_xlim(-0.02, 1.04)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: share(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: share(round(value, 6))))
    axes.set_xlabel("rows recovered by the strongest attack")
    axes.set_title("accuracy", loc="left", fontsize=12, color=SOFT)
    wide = "for a phone" if slim else "for a screen"
    return svg(drawing, f"Accuracy of each setting against the rows that the strongest attack recovers, {wide}.")


def _number(axes: Axes, points: Sequence[Point], *, names: bool) -> None:
    """Write the numbers of dots to their left, and the name of a dot that is alone where there is room."""
    for (recovery, accuracy), numbers in _together(points):
        told = ", ".join(map(str, numbers))
        if len(numbers) == 1 and names:
            told += f". {points[numbers[0] - 1].setting}"
        axes.annotate(
            told,
            (recovery, accuracy),
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


def settings_table(points: Sequence[Point]) -> Markup:
    """Render the rows of `table`, numbered, and mark the settings that no other beats."""
    headings, rows = table(points)
    best = set(map(id, frontier(points)))
    body = []
    for number, (point, (setting, *figures)) in enumerate(zip(points, rows, strict=True), start=1):
        mark = " ●" if id(point) in best else ""
        cells = [el("td", figure, class_="n") for figure in figures]
        body.append(el("tr", el("td", f"{number}. {setting}{mark}"), *cells))
    head = el("tr", *(el("th", h.removeprefix(">"), class_="n" if h.startswith(">") else None) for h in headings))
    inside = el("table", el("thead", head), el("tbody", *body), class_="settings")
    return scroll(inside, "Every setting")


def _theorem(checks: Sequence[Inequality]) -> Markup:
    rows = []
    for check in checks:
        figures = [f"{value:.2f}" for value in (check.epsilon, check.supremum, check.median)]
        cells = [el("td", figure, class_="n") for figure in (*figures, percent(check.outside))]
        verdict = "holds" if check.step_holds else "fails"
        rows.append(el("tr", el("td", check.case), *cells, el("td", verdict)))
    titles = ("case", "claimed", "largest possible", "median draw", "draws beyond", "the step")
    head = el("tr", *(el("th", t, class_="n" if 0 < i < 5 else None) for i, t in enumerate(titles)))
    note = el("p", "Logarithms of the ratio of posteriors that the paper's proof bounds by ε, for two noisy copies.")
    return join((note, el("div", el("table", el("thead", head), el("tbody", *rows)), class_="scroll")))
