"""The page of all results: claims, then every experiment, the trade-off, the comparison, and how to reproduce them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from splitwiper_lab.evaluation.comparison import summary
from splitwiper_lab.evaluation.recommend import recommendation
from splitwiper_lab.evaluation.reproduction import CheckVerdict, judged
from splitwiper_lab.pages import comparison, tradeoff
from splitwiper_lab.pages.document import Table, described, document
from splitwiper_lab.pages.reproduction.by_system import side_by_side
from splitwiper_lab.pages.reproduction.claim import PaperClaim
from splitwiper_lab.pages.reproduction.collected import Beside, Collected, Measured, made_as_text
from splitwiper_lab.pages.reproduction.costs import cheaper
from splitwiper_lab.pages.reproduction.figures import draw_figure
from splitwiper_lab.pages.reproduction.forgetting import forgotten, retained
from splitwiper_lab.pages.reproduction.formulas import FormulaTable, formula_table
from splitwiper_lab.pages.reproduction.hiding import hidden
from splitwiper_lab.pages.reproduction.quantities import in_words, listing, look
from splitwiper_lab.pages.reproduction.series import Panels
from splitwiper_lab.pages.reproduction.tables import PaperTable, note, paper_tables

TITLE = "SplitWiper: the paper's results, measured again"
SCALES = {
    "smoke": "seconds on a processor; bundled data and small networks. It shows that everything works, and no more.",
    "cpu": "minutes on two cores; parts of the real data and narrower networks.",
    "full": "one GPU; the paper's networks and numbers of epochs, on real data.",
}
"""A description of each scale."""


@dataclass(frozen=True)
class ExperimentSection:
    """What the page shows of an experiment; without results, nothing but its command and what is missing.

    Attributes:
        measured: the experiment and its results.
        figure: its charts.
        formulas: formulas and measured exponents, if it is about these.
        tables: tables in the paper's layout; None if every figure is listed instead.
        note: what is below these tables.
        listing: every figure as a table.
        verdicts: its checks, and the paper's claims about it, under a title each.
        made: where the results come from.
    """

    measured: Measured
    figure: Panels | None = None
    formulas: FormulaTable | None = None
    tables: list[PaperTable] | None = None
    note: str = ""
    listing: Table | None = None
    verdicts: tuple[tuple[str, list[CheckVerdict]], ...] = ()
    made: str = ""


def claims(collected: Collected) -> tuple[PaperClaim, ...]:
    """Return all four claims, in the paper's order. No verdict is typed: each follows from its evidence."""
    return forgotten(collected), retained(collected), cheaper(collected), hidden(collected)


def render(collected: Collected) -> str:
    """Render the page. This is a pure function: the same results give the same bytes."""
    done, wanted = 0, 0
    for measured in collected.measured:
        if measured.experiment.id == measured.experiment.measured_as:  # others show the cells of that one again
            done += measured.done
            wanted += measured.wanted
    return document(
        "results.html",
        title=TITLE,
        scales=SCALES,
        collected=collected,
        done=done,
        wanted=wanted,
        claims=claims(collected),
        sections=list(map(_section, collected.measured)),
        tradeoff=_tradeoff(collected.tradeoff) if collected.tradeoff else None,
        comparison=_comparison(collected.comparison) if collected.comparison else None,
    )


def _section(measured: Measured) -> ExperimentSection:
    if not measured.results:
        return ExperimentSection(measured)
    # conditions without results would be empty tables
    experiment, kind, present = measured.experiment, look(measured.experiment), measured.there
    is_as_in_paper = kind in ("", "samples", "membership")
    verdicts = []
    for title, names in (("What must hold", experiment.checks), ("What the paper says", experiment.claims)):
        if names:
            verdicts.append((title, list(map(_in_words, judged(experiment, measured.results, names)))))
    return ExperimentSection(
        measured,
        figure=draw_figure(present, kind),
        # the side: "exponents client" or "exponents server"
        formulas=formula_table(present, kind.split()[-1]) if kind.startswith("exponents") else None,
        tables=paper_tables(present, kind) if is_as_in_paper else None,
        note=note(present),
        listing=None if is_as_in_paper else listing(present),
        verdicts=tuple(verdicts),
        made=made_as_text(measured.made),
    )


def _in_words(verdict: CheckVerdict) -> CheckVerdict:
    return replace(verdict, says=in_words(verdict.says), figures=tuple(map(in_words, verdict.figures)))


def _tradeoff(beside: Beside) -> dict[str, Any]:
    return {
        "advice": recommendation(beside.points),
        "plot": tradeoff.plot(beside.points),
        # a phone gets its own drawing: text would be too small in the other
        "slim_plot": tradeoff.plot(beside.points, slim=True),
        "explained": tradeoff.EXPLAINED,
        "table": tradeoff.table(beside.points),
        "best": tradeoff.unbeaten(beside.points),
        "made": _made(beside),
    }


def _comparison(beside: Beside) -> dict[str, Any]:
    bandwidth = float(beside.about.get("bandwidth", 100))
    lines = summary(beside.records, bandwidth=bandwidth * 1e6)
    return {
        "bandwidth": bandwidth,
        "figure": side_by_side(lines),
        "short": comparison.short(lines),
        "table": comparison.table(lines),
        "more": comparison.more(lines),
        "made": _made(beside),
    }


def _made(beside: Beside) -> str:
    conditions = described(beside.about, without=("settings", "data", "membership", "title", "quick"))
    return f"{conditions}. {made_as_text(beside.made)} Results: {beside.file}."
