"""The paper's tables with our figures: effectiveness and efficiency, forgetting samples, membership inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from splitwiper.formats import NONE
from splitwiper_lab.evaluation.comparison import SeedSpread
from splitwiper_lab.evaluation.reproduction import Condition, Experiment
from splitwiper_lab.evaluation.reproduction.cells import systems_of
from splitwiper_lab.evaluation.reproduction.formatting import in_column
from splitwiper_lab.pages.reproduction.collected import Measured
from splitwiper_lab.pages.reproduction.quantities import difference, reported

Rows = Sequence[tuple[str, tuple[str, ...]]]
"""Titles of rows, and the quantities in their cells."""
BlockRows = tuple[str, Rows, Condition]
"""The title of a block, its rows, and the condition that its figures are of."""
PHASES = {"learned": "Learning", "unlearned": "Unlearning"}
_SAMPLES: Rows = (
    ("The label, before, %", ("learned.forgotten",)),
    ("The label, after, %", ("unlearned.forgotten",)),
    ("Other labels, before, %", ("learned.retained",)),
    ("Other labels, after, %", ("unlearned.retained",)),
)
_ATTACKS = {"two models": "Asking both models", "labels only": "Seeing labels only"}


@dataclass(frozen=True)
class PaperCell:
    """Our figure, and below it the paper's figure and the difference, if there is one.

    Attributes:
        ours: our figure, or two; without deviations if there are two.
        hint: two figures with their deviations, for those who point at the cell.
        paper: the paper's figures.
        difference: ours minus the paper's.
    """

    ours: str
    hint: str
    paper: str
    difference: str


@dataclass(frozen=True)
class RowGroup:
    """Rows of a table under one heading; each has a title and a cell for each system."""

    title: str
    rows: list[tuple[str, list[PaperCell]]]


@dataclass(frozen=True)
class PaperTable:
    """A table in the paper's layout: systems across, blocks of rows below each other."""

    title: str
    caption: str
    systems: list[str]
    blocks: list[RowGroup]
    folded: bool = False


def paper_tables(measured: Measured, look: str) -> list[PaperTable]:
    """Return the tables of an experiment that is shown as the paper does, of conditions with results."""
    if look == "":
        return _effectiveness(measured)
    groups: dict[str, list[Condition]] = {}
    for condition in measured.experiment.conditions:
        groups.setdefault(condition.group, []).append(condition)
    drawn = []
    for group, conditions in groups.items():
        blocks: list[BlockRows] = []
        for condition in conditions:
            share = f"δ = {condition.x:g}" if condition.x is not None else condition.name
            if look == "samples":
                blocks.append((share, _SAMPLES, condition))
            else:
                blocks += _attack_blocks(measured, condition, share)
        caption = group or ("accuracy" if look == "samples" else "hit rates")
        drawn.append(_table(measured, group or "All", caption, blocks))
    return drawn


def _effectiveness(measured: Measured) -> list[PaperTable]:
    """Return a table for each condition: learning above unlearning."""
    drawn: list[PaperTable] = []
    for condition in measured.experiment.conditions:
        blocks = []
        for phase, title in PHASES.items():
            label = "Forgotten label" if phase == "unlearned" else "Label to forget"
            rows = (
                ("Requesting client: training / sending, s", _client_times(phase, "requester")),
                ("Other clients: training / sending, s", _client_times(phase, "others")),
                (f"{label}: accuracy, %", (f"{phase}.forgotten",)),
                ("Other labels: accuracy, %", (f"{phase}.retained",)),
            )
            blocks.append((title, rows, condition))
        # only the first is open: the page would be very long
        drawn.append(_table(measured, condition.name, condition.name, blocks, folded=bool(drawn)))
    return drawn


def _client_times(phase: str, client: str) -> tuple[str, str]:
    return f"{phase}.{client}.training", f"{phase}.{client}.sending"


def _attack_blocks(measured: Measured, condition: Condition, share: str) -> list[BlockRows]:
    """Return hit rates with false alarms, and the AUC, of the attacks that were run under a condition."""
    run = set[str]()
    for (name, _), values in measured.spreads.items():
        if name == condition.name:
            run.update(values)
    blocks: list[BlockRows] = []
    for attack, title in _ATTACKS.items():
        if f"{attack}.hit_rate" in run:  # not every experiment ran every attack
            rows = (
                ("Hit rate, %", (f"{attack}.hit_rate",)),
                ("False alarms, %", (f"{attack}.false_positive_rate",)),
                ("AUC", (f"{attack}.auc",)),
            )
            blocks.append((f"{share}. {title}", rows, condition))
    return blocks


def _table(
    measured: Measured, title: str, caption: str, blocks: Sequence[BlockRows], *, folded: bool = False
) -> PaperTable:
    experiment, spreads = measured.experiment, measured.spreads
    run = set[str]()
    for _, _, condition in blocks:
        for system in systems_of(experiment, condition):
            run.add(system.name)
    systems = [name for name in experiment.names if name in run]
    drawn = []
    for heading, rows, condition in blocks:
        block = RowGroup(heading, [])
        for name, quantities in rows:
            cells = []
            for column in systems:
                values = spreads.get((condition.name, column), {})
                cells.append(_cell(experiment, condition.name, column, quantities, values))
            block.rows.append((name, cells))
        drawn.append(block)
    return PaperTable(title, caption, systems, drawn, folded)


def _cell(
    experiment: Experiment, condition: str, system: str, names: Sequence[str], values: Mapping[str, SeedSpread]
) -> PaperCell:
    every, papers, differences, has_paper = [], [], [], False
    for name in names:
        spread, paper = values.get(name), reported(experiment, condition, name, system)
        every.append(in_column(spread, name))
        papers.append(NONE if paper is None else f"{paper:g}")
        differences.append(difference(spread, paper, name))
        has_paper = has_paper or paper is not None
    hint = " / ".join(every)
    if len(every) == 1:
        ours, hint = hint, ""
    else:  # two figures with deviations are too wide for a cell
        ours = " / ".join(text.split(" ±")[0] for text in every)  # the hint has the deviations
    return PaperCell(
        ours,
        hint if values else "",
        " / ".join(papers) if has_paper else "",
        " / ".join(differences) if has_paper and values else "",
    )


def note(measured: Measured) -> str:
    """Say what ± and the paper's figures mean, where a table has them."""
    experiment = measured.experiment
    texts: list[str] = []
    for values in measured.spreads.values():
        if not texts and any(spread.deviation is not None for spread in values.values()):
            texts.append("± is the deviation over seeds.")
    if experiment.reported and experiment.scale == "full":
        texts.append("Below our figure: the paper's, then ours − paper (points of accuracy, or seconds).")
    elif experiment.reported:
        texts.append(f"The paper's figures are left out at scale {experiment.scale}: data and networks are smaller.")
    return " ".join(texts)
