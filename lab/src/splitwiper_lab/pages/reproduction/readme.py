"""An experiment's README: what it reproduces, the paper's figures, ours, and their provenance."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from operator import itemgetter

from splitwiper_lab.evaluation.reproduction import Experiment, judged
from splitwiper_lab.pages.document import Table, markdown_table
from splitwiper_lab.pages.reproduction.collected import Measured, how_measured, provenance
from splitwiper_lab.pages.reproduction.quantities import in_words, listing, narrow_parts
from splitwiper_lab.sweeps import CellResult


def readme(experiment: Experiment, results: Sequence[CellResult]) -> str:
    """Return the text of an experiment's README at the experiment's scale."""
    measured = Measured(experiment, results)
    parts = [f"# {experiment.title}"]
    for prose in (f"In the paper: {experiment.paper}.", experiment.about, experiment.notes):
        parts.append(_wrapped(prose))
    parts += [f"    {measured.command}", "## Results"]
    if results:
        parts += _results(measured)
    else:
        parts += ["Not measured yet.", *_reported(measured)]
    end = "Written by `splitwiper results --readmes` from the results; do not edit. Settings are in "
    parts.append(_wrapped(f"{end}[experiment.toml](experiment.toml)."))
    return "\n\n".join(filter(None, parts)) + "\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _results(measured: Measured) -> list[str]:
    verdicts = []
    for verdict in judged(measured.experiment, measured.results):
        line = f"- {verdict.word.capitalize()}: {verdict.says}. {in_words(verdict.sentence(4))}"
        verdicts.append(_plain_spaces(line).rstrip())
    tables = []
    for columns in narrow_parts(measured.experiment):  # a table of all columns would not fit a screen
        tables += _table(listing(measured, all_of=True, columns=columns))
    note = "± is the deviation over seeds."
    if measured.experiment.reported:
        note += " Differences are ours − paper, in points of accuracy or in seconds."
    made = measured.made
    covered = f"{measured.done} of {measured.wanted} cells are there; seeds in each: {measured.seeds()}."
    facts = "\n".join(f"- {name}: {value}" for name, value in provenance(made).items())
    return ["\n".join(verdicts), *tables, note, _wrapped(how_measured(made)), covered, facts]


def _reported(measured: Measured) -> list[str]:
    """Return only the paper's figures: of the listing, the paper's columns with the titles of ours."""
    headings, rows = listing(measured, all_of=True)
    if not rows:
        return []
    kept, titles = [0, 1], list(headings[:2])
    for place, title in enumerate(headings):
        if title == ">paper":
            kept.append(place)
            titles.append(headings[place - 1])  # ours stands before the paper's
    chosen = itemgetter(*kept)
    return ["The paper's figures, in percent and seconds:", *_table((titles, list(map(chosen, rows))))]


def _table(table: Table) -> list[str]:
    return [_plain_spaces(markdown_table(*table))] if table[1] else []


def _plain_spaces(text: str) -> str:
    """Replace no-break spaces, which editors show in different ways."""
    return text.replace("\xa0", " ")
