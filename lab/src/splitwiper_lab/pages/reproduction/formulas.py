"""The tables of overhead: the paper's formulas, and the measured exponents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from splitwiper.formats import NONE
from splitwiper_lab.evaluation.reproduction.checks import verdict_word
from splitwiper_lab.evaluation.reproduction.growth import FORMULAS, Fitted, client_formulas, exponents, server_formulas
from splitwiper_lab.pages.reproduction.collected import Measured
from splitwiper_lab.pages.reproduction.tables import PHASES

_AXES = ("M", "K", "γ")
_QUANTITIES = {
    "client": {"operations": ("clients.flops", "flops"), "bytes": ("clients.bytes", "bytes")},
    "server": {
        "operations": ("server.flops", "operations"),
        "bytes sent": ("server.bytes", ""),
        "bytes stored": ("server.storage", ""),
    },
}
"""By side and title: the fitted quantities, and their names in checks; empty for those that are not checked."""


@dataclass(frozen=True)
class FormulaRow:
    """A system's formula, the exponents of every quantity over every axis, and whether they are as the formula says."""

    system: str
    formula: str
    cells: list[str]
    verdict: str


@dataclass(frozen=True)
class FormulaTable:
    """The quantities' titles, the axes under each of them, and the rows of each phase."""

    titles: list[str]
    axes: tuple[str, ...]
    phases: list[tuple[str, list[FormulaRow]]]


def formula_table(measured: Measured, side: str) -> FormulaTable:
    """Show each formula with its expected exponents, the measured ones, and whether they agree."""
    checks = client_formulas if side == "client" else server_formulas
    outcomes = {text.rpartition(":")[0]: ok for ok, text in checks(measured.experiment, measured.results)}
    phases = []
    for phase, formulas in FORMULAS[side].items():
        fitted = {}
        for title, (quantity, _) in _QUANTITIES[side].items():
            fitted[title] = exponents(measured.experiment, measured.results, f"{phase}.{quantity}")
        rows = []
        for system, (formula, wanted) in formulas.items():
            cells, held = [], list[bool]()
            for title, (quantity, checked) in _QUANTITIES[side].items():
                for axis in _AXES:
                    cell, judged = _cell(fitted[title], f"{phase}, {checked}", system, axis, outcomes)
                    # copies of a row are stored and not computed, so a client's operations do not grow with γ
                    expected = 0.0 if (quantity, axis) == ("clients.flops", "γ") else wanted.get(axis)
                    if checked and expected is not None and cell != NONE:
                        cell += f" ({expected:g})"
                    cells.append(cell)
                    held += judged
            # one exponent against the formula refutes it
            rows.append(FormulaRow(system, formula, cells, verdict_word(all(held) if held else None)))
        phases.append((PHASES[phase], rows))
    return FormulaTable(list(_QUANTITIES[side]), _AXES, phases)


def _cell(
    fitted: Fitted, quantity: str, system: str, axis: str, outcomes: Mapping[str, bool]
) -> tuple[str, list[bool]]:
    """Format the exponents of a system over an axis, as a range if there are several measurements."""
    slopes, held = [], []
    for (fitted_axis, name), (slope, points) in fitted.items():
        # settings of a system follow its name after a comma
        if fitted_axis == axis and name.split(",")[0] == system and slope is not None and points > 1:
            slopes.append(slope)
            outcome = outcomes.get(f"{quantity}, {name} over {axis}")
            if outcome is not None:
                held.append(outcome)
    if not slopes:
        return NONE, held
    low, high = f"{min(slopes):.2f}", f"{max(slopes):.2f}"
    return (low if low == high else f"{low}…{high}").replace("-", "−"), held
