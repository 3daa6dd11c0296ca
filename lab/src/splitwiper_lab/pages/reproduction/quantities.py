"""Quantities of experiments as text: the columns of each, our figures, the paper's, and the difference."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from splitwiper.formats import NONE, size
from splitwiper_lab.evaluation.comparison import SeedSpread
from splitwiper_lab.evaluation.reproduction import Experiment
from splitwiper_lab.evaluation.reproduction.outcomes import over_seeds
from splitwiper_lab.pages.reproduction.collected import Measured

_PHASES = {"learned": "learning", "unlearned": "forgetting"}
_TIMES = {}
for _phase, _when in _PHASES.items():
    for _who in ("requester", "others"):
        for _what in ("training", "sending"):
            _TIMES[f"{_phase}.{_who}.{_what}"] = f"{_who} {_what}, {_when}, s"


def _by_phase(party: str, quantities: Mapping[str, str]) -> dict[str, str]:
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
COLUMNS: dict[str, dict[str, str]] = {
    "": {**_ACCURACY, **_TIMES},
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
"""Quantities and their column titles, by the way an experiment is shown."""


def look(experiment: Experiment) -> str:
    """Return the way an experiment is shown; experiments that forget samples have their own."""
    levels = {str(condition.settings.get("level", "")) for condition in experiment.conditions}
    return "samples" if not experiment.show and "sample" in levels else experiment.show


def unit(name: str) -> str:
    """Return a quantity's unit: %, s, bytes (B) or none.

    >>> unit("learned.retained"), unit("learned.others.sending"), unit("two models.auc")
    ('%', 's', '')
    """
    last = name.rpartition(".")[2]
    if last in ("training", "sending", "seconds"):
        return "s"
    if last in ("bytes", "sent", "storage"):
        return "B"
    return "" if last in ("messages", "flops", "auc", "exact", "took_part") else "%"


def amount(value: float, name: str) -> str:
    """Format a quantity's value, without its unit, except for bytes.

    >>> amount(0.9312, "learned.retained"), amount(1234.5, "seconds"), amount(0.0123, "seconds")
    ('93.1', '1,234', '0.0123')
    """
    kind = unit(name)
    if kind == "%":
        return f"{100 * value:.1f}"
    if kind == "B":
        return size(round(value))
    if not value:
        return "0"
    if name.endswith("flops"):
        return f"{value:.3g}".replace("e+", "e")
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def told(spread: SeedSpread | None, name: str) -> str:
    """Format a quantity with its deviation over seeds."""
    if spread is None or spread.mean is None:
        return NONE
    around = f" ±\xa0{amount(spread.deviation, name)}" if spread.deviation else ""
    return amount(spread.mean, name) + around


def reported(experiment: Experiment, condition: str, name: str, system: str) -> float | None:
    """Return the paper's figure, in percent or seconds; None if it has none, and at all scales except full."""
    if experiment.scale != "full":
        return None
    for where in (experiment.reported.get(condition), experiment.reported):
        value: Any = where
        for part in (*name.split("."), system):
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, int | float):
            return float(value)
    return None


def difference(spread: SeedSpread | None, paper: float | None, name: str) -> float | None:
    """Return our figure minus the paper's, in the paper's unit."""
    if spread is None or spread.mean is None or paper is None:
        return None
    return spread.mean * (100 if unit(name) == "%" else 1) - paper


def signed(value: float | None, name: str) -> str:
    """Format a difference with its sign.

    >>> signed(-0.52, "learned.retained"), signed(None, "seconds")
    ('−0.5', '–')
    """
    if value is None:
        return NONE
    text = f"{abs(value):.1f}" if unit(name) == "%" else amount(abs(value), name)
    return ("−" if value < 0 else "+") + text


def parts_of(experiment: Experiment) -> list[dict[str, str]]:
    """Split the columns of an experiment into tables that are narrow enough for a text file."""
    columns = COLUMNS[look(experiment)]
    if len(columns) < 8:
        return [columns]
    parts: dict[str, dict[str, str]] = {"": {}, "requester": {}, "others": {}}
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
            text = re.sub(rf"\b{phase}\.{re.escape(name)}", f"{word} {purpose}", text)
    return text.replace(" %", "\xa0%")


def listing(
    measured: Measured, *, all_of: bool = False, columns: Mapping[str, str] | None = None
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and rows: every cell with its quantities, and the paper's figures next to ours if there are any.

    Args:
        measured: the experiment.
        all_of: also include rows without results, if the paper has figures for them.
        columns: quantities and their column titles; by default all.
    """
    experiment = measured.experiment
    columns = COLUMNS[look(experiment)] if columns is None else columns
    found = over_seeds(experiment, measured.results)
    cells = [(one.condition, one.system) for one in measured.covered]
    shown, compared = set(), set()
    for name in columns:
        if any(name in values for values in found.values()):
            shown.add(name)
        if any(reported(experiment, condition, name, system) is not None for condition, system in cells):
            compared.add(name)
    names = [name for name in columns if name in shown or (all_of and name in compared)]
    head = ["condition", "system"]
    for name in names:
        head += [f">{columns[name]}"] + ([">paper", ">ours − paper"] if name in compared else [])
    rows = []
    for covered in measured.covered:
        values = found.get((covered.condition, covered.system), {})
        papers = {name: reported(experiment, covered.condition, name, covered.system) for name in names}
        if not values and not (all_of and any(paper is not None for paper in papers.values())):
            continue
        rows.append(
            (
                covered.condition,
                covered.system,
                *_cells(names, compared, values, papers),
                f"{covered.done} of {covered.wanted}",
            )
        )
    return (*head, ">seeds"), rows


def _cells(
    names: Sequence[str], compared: set[str], values: Mapping[str, SeedSpread], papers: Mapping[str, float | None]
) -> list[str]:
    out = []
    for name in names:
        spread, paper = values.get(name), papers[name]
        out.append(told(spread, name))
        if name in compared:
            out += [NONE if paper is None else f"{paper:g}", signed(difference(spread, paper, name), name)]
    return out
