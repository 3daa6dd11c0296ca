"""The tables of overhead: the paper's formulas, and the measured exponents."""

from __future__ import annotations

from collections.abc import Mapping

from splitwiper.formats import NONE
from splitwiper_lab.evaluation.reproduction.growth import FORMULAS, client_formulas, exponents, server_formulas
from splitwiper_lab.pages.html.markup import Markup, el
from splitwiper_lab.pages.html.parts import row_head, scroll, table, td, th, tr
from splitwiper_lab.pages.reproduction.collected import Measured
from splitwiper_lab.pages.reproduction.parts import judged_as, verdict_pill

_AXES = ("M", "K", "γ")
_WHAT = {
    "client": {"flops": ("clients.flops", "flops"), "bytes": ("clients.bytes", "bytes")},
    "server": {
        "operations": ("server.flops", "operations"),
        "bytes sent": ("server.bytes", ""),
        "bytes stored": ("server.storage", ""),
    },
}
"""By side: the fitted quantities, and their names in checks; empty for those that are shown but not checked."""
_COLUMNS = {"flops": "operations"}


def formulas(measured: Measured, side: str) -> Markup:
    """Show each formula with its expected exponents, the measured ones, and whether they agree."""
    checks = client_formulas if side == "client" else server_formulas
    marks = {text.rpartition(":")[0]: ok for ok, text in checks(measured.experiment, measured.results)}
    titles = [(what, axis) for what in _WHAT[side] for axis in _AXES]
    groups = []
    for what in _WHAT[side]:
        groups.append(th(_COLUMNS.get(what, what), colspan=len(_AXES), scope="colgroup", class_="group"))
    head = [
        tr(th("", rowspan=2), th("formula", rowspan=2), *groups, th("verdict", rowspan=2)),
        tr(*(th(f"over {axis}", class_="n") for _, axis in titles)),
    ]
    body: list[Markup] = []
    for phase, rows in FORMULAS[side].items():
        width = 2 + len(titles)
        title = "Learning" if phase == "learned" else "Unlearning"
        body.append(tr(th(title, scope="colgroup"), *(el("td") for _ in range(width)), class_="part"))
        fitted = {
            what: exponents(measured.experiment, measured.results, f"{phase}.{name}")
            for what, (name, _) in _WHAT[side].items()
        }
        for system, (formula, wanted) in rows.items():
            cells, held = [], list[bool]()
            for what, axis in titles:
                told, ok = _cell(fitted[what], f"{phase}, {_WHAT[side][what][1]}", system, axis, marks)
                checked = _WHAT[side][what][1]
                wants = (0.0 if (what, axis) == ("flops", "γ") else wanted.get(axis)) if checked else None
                cells.append(td(told if wants is None or told == NONE else f"{told} ({wants:g})", "n"))
                held += ok
            verdict = verdict_pill(judged_as(all(held) if held else None))
            body.append(tr(row_head(system), td(formula), *cells, td(verdict)))
    caption = "Exponents measured, and in brackets those that the formula means"
    note = el("p", f"{caption}: 1 is linear, 0 is constant.", class_="caption")
    return el("div", scroll(table(head, body, caption=caption, class_="formulas"), caption), note)


def _cell(
    fitted: Mapping[tuple[str, str], tuple[float | None, int]],
    what: str,
    system: str,
    axis: str,
    marks: Mapping[str, bool],
) -> tuple[str, list[bool]]:
    """Format the exponents of a system over an axis, as a range if there are several measurements."""
    found, held = [], []
    for (there, name), (slope, points) in fitted.items():
        if there == axis and name.split(",")[0] == system and slope is not None and points > 1:
            found.append(slope)
            if (mark := marks.get(f"{what}, {name} over {axis}")) is not None:
                held.append(mark)
    if not found:
        return NONE, held
    low, high = f"{min(found):.2f}", f"{max(found):.2f}"
    return (low if low == high else f"{low}…{high}").replace("-", "−"), held
