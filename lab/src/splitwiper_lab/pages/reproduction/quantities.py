"""The columns of experiments: our figures, the paper's, and the difference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from splitwiper.formats import NONE
from splitwiper_lab.evaluation.comparison import SeedSpread
from splitwiper_lab.evaluation.reproduction import Experiment
from splitwiper_lab.evaluation.reproduction.formatting import amount, in_column, unit
from splitwiper_lab.pages.document import Table
from splitwiper_lab.pages.reproduction.collected import Measured

Columns = dict[str, str]
"""Quantities and their column titles."""
_PHASES = {"learned": "learning", "unlearned": "forgetting"}


def _times() -> Columns:
    columns = {}
    for phase, when in _PHASES.items():
        for who in ("requester", "others"):
            columns[f"{phase}.{who}.training"] = f"{who} training, {when}, s"
            columns[f"{phase}.{who}.sending"] = f"{who} sending, {when}, s"
    return columns


def _by_phase(party: str, quantities: Mapping[str, str]) -> Columns:
    """Return the titles of a party's quantities while learning, then while forgetting."""
    titles = {}
    for phase, when in _PHASES.items():
        for name, word in quantities.items():
            titles[f"{phase}.{party}.{name}"] = f"{word}, {when}"
    return titles


_ACCURACY = {
    "learned.forgotten": "label to forget, before, %",
    "unlearned.forgotten": "label to forget, after, %",
    "learned.retained": "other labels, before, %",
    "unlearned.retained": "other labels, after, %",
}
COLUMNS: dict[str, Columns] = {
    "": {**_ACCURACY, **_times()},
    "samples": _ACCURACY,
    "times": {
        "learned.clients.training": "all clients training, s",
        "learned.clients.sending": "all clients sending, s",
        "learned.clients.bytes": "bytes",
        "learned.clients.flops": "operations",
    },
    "accuracy": _ACCURACY,
    "clusters": {
        "elbow.perfect": "elbow: perfect, %",
        "elbow.inclusive": "elbow: inclusive, %",
        "kmeans Q.perfect": "knowing Q: perfect, %",
        "kmeans Q.inclusive": "knowing Q: inclusive, %",
    },
    "birch": {
        "birch.perfect": "knowing nothing: perfect, %",
        "birch.inclusive": "knowing nothing: inclusive, %",
        "birch Q.perfect": "knowing Q: perfect, %",
        "birch Q.inclusive": "knowing Q: inclusive, %",
    },
    "membership": {
        "two models.hit_rate": "hit rate, %",
        "two models.false_positive_rate": "false alarms, %",
        "two models.auc": "AUC",
        "labels only.hit_rate": "labels only: hit rate, %",
        "labels only.false_positive_rate": "labels only: false alarms, %",
        "labels only.auc": "labels only: AUC",
    },
    "curves": {"accuracy": "accuracy after the last epoch, %", "changed": "answers that still change, %"},
    "consensus": {"seconds": "time, s", "messages": "messages"},
    "exponents client": _by_phase("clients", {"flops": "operations", "bytes": "bytes"}),
    "exponents server": _by_phase("server", {"flops": "operations", "bytes": "bytes sent", "storage": "bytes stored"}),
}
"""Columns, by the way an experiment is shown."""


def look(experiment: Experiment) -> str:
    """Return the way an experiment is shown; experiments that forget samples have their own."""
    for condition in experiment.conditions:
        if not experiment.show and condition.settings.get("level") == "sample":
            return "samples"
    return experiment.show


def reported(experiment: Experiment, condition: str, name: str, system: str) -> float | None:
    """Return the paper's figure, in percent or seconds; None if it has none, and at all scales except full."""
    if experiment.scale != "full":  # smaller data and networks cannot be compared with the paper's
        return None
    # figures of a condition come before those of all
    for where in (experiment.reported.get(condition), experiment.reported):
        value: Any = where
        for part in (*name.split("."), system):
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, int | float):
            return float(value)
    return None


def difference(spread: SeedSpread | None, paper: float | None, name: str) -> str:
    """Return our figure minus the paper's, in the paper's unit and with its sign.

    >>> difference(SeedSpread(0.8516, None, 1), 85.68, "learned.retained"), difference(None, 1.0, "seconds")
    ('−0.5', '–')
    """
    if spread is None or spread.mean is None or paper is None:
        return NONE
    if unit(name) == "%":
        value = 100 * spread.mean - paper
        text = f"{abs(value):.1f}"
    else:
        value = spread.mean - paper
        text = amount(abs(value), name)
    return ("−" if value < 0 else "+") + text


def narrow_parts(experiment: Experiment) -> list[Columns]:
    """Split the columns of an experiment into tables that are narrow enough for a text file."""
    columns = COLUMNS[look(experiment)]
    if len(columns) < 8:  # as many as fit a screen
        return [columns]
    parts: dict[str, Columns] = {"": {}, "requester": {}, "others": {}}
    for name, title in columns.items():
        party = name.split(".")[1]
        parts[party if party in parts else ""][name] = title
    return list(parts.values())


_WORDS = {"clients.sending": "sending", "clients.flops": "operations", "clients.bytes": "bytes"}


def in_words(text: str) -> str:
    r"""Replace the names of quantities in a check's figures by plain words.

    >>> in_words("γ = 1, learned.clients.flops: 0.00"), in_words("at most 5 %")
    ('γ = 1, operations to learn: 0.00', 'at most 5\xa0%')
    """
    for phase, purpose in (("learned", "to learn"), ("unlearned", "to forget")):
        for name, word in _WORDS.items():
            # from the start of a word, since "unlearned" ends as "learned" does
            text = re.sub(rf"\b{phase}\.{re.escape(name)}", f"{word} {purpose}", text)
    return text.replace(" %", "\xa0%")


def listing(measured: Measured, *, all_of: bool = False, columns: Columns | None = None) -> Table:
    """Return headings and rows: every cell with its quantities, and the paper's figures next to ours if there are any.

    Args:
        measured: the experiment.
        all_of: also include rows without results, if the paper has figures for them.
        columns: quantities and their column titles; by default all.
    """
    experiment = measured.experiment
    columns = COLUMNS[look(experiment)] if columns is None else columns
    shown = set[str]().union(*measured.spreads.values())
    papers: dict[tuple[str, str, str], float] = {}
    for covered in measured.covered:
        for name in columns:
            paper = reported(experiment, covered.condition, name, covered.system)
            if paper is not None and (name in shown or all_of):
                papers[covered.condition, covered.system, name] = paper
    compared = {name for _, _, name in papers}
    names = [name for name in columns if name in shown or name in compared]
    headings = ["condition", "system"]
    for name in names:
        headings.append(f">{columns[name]}")
        if name in compared:
            headings += [">paper", ">ours − paper"]
    rows = []
    for covered in measured.covered:
        values = measured.spreads.get((covered.condition, covered.system), {})
        row = [covered.condition, covered.system]
        has_paper = False
        for name in names:
            spread, paper = values.get(name), papers.get((covered.condition, covered.system, name))
            has_paper = has_paper or paper is not None
            row.append(in_column(spread, name))
            if name in compared:
                row += [NONE if paper is None else f"{paper:g}", difference(spread, paper, name)]
        if values or (all_of and has_paper):
            rows.append([*row, f"{covered.done} of {covered.wanted}"])
    return [*headings, ">seeds"], rows
