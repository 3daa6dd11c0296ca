"""An experiment's README: what it reproduces, the paper's figures, ours, and their provenance."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from splitwiper_lab.evaluation.reproduction import Experiment, judged
from splitwiper_lab.pages.reproduction.collected import Measured, how_told, made_of
from splitwiper_lab.pages.reproduction.parts import judged_as
from splitwiper_lab.pages.reproduction.quantities import in_words, listing, parts_of
from splitwiper_lab.pages.reproduction.sections import command
from splitwiper_lab.sweeps import CellResult

FILE = "README.md"


def readme(experiment: Experiment, results: Sequence[CellResult]) -> str:
    """Return the text of an experiment's README at the experiment's scale."""
    measured = Measured(experiment, results)
    prose = (f"In the paper: {experiment.paper}.", experiment.about, experiment.notes)
    parts = [f"# {experiment.title}", *(_wrapped(text) for text in prose if text)]
    parts += [f"    {command(measured)}", "## Results"]
    parts += _results(measured) if results else ["Not measured yet.", *_reported(measured)]
    end = "Written by `splitwiper results --readmes` from the results; do not edit. Settings are in "
    parts.append(_wrapped(f"{end}[experiment.toml](experiment.toml)."))
    return "\n\n".join(parts) + "\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _results(measured: Measured) -> list[str]:
    facts = made_of([result.made for result in measured.results])
    made = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    covered = f"{measured.done} of {measured.wanted} cells are there; seeds in each: {measured.seeds()}."
    found = judged(measured.experiment, measured.results)
    lines = []
    for one in found:
        line = f"- {judged_as(one.held).capitalize()}: {one.says}. {in_words(one.told(4))}"
        lines.append(line.replace("\xa0", " ").rstrip())
    verdicts = "\n".join(lines)
    how = how_told([result.made for result in measured.results])
    return [part for part in (verdicts, *_tables(measured), _note(measured), _wrapped(how), covered, made) if part]


def _reported(measured: Measured) -> list[str]:
    """Return only the paper's figures."""
    headings, rows = listing(measured, all_of=True)
    if not rows:
        return []
    return ["The paper's figures, in percent and seconds:", _markdown(*_only_paper(headings, rows))]


def _only_paper(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Return only the paper's columns of a listing, with the titles of ours."""
    kept = [place for place, name in enumerate(headings) if name == ">paper"]
    head = [*headings[:2], *(headings[place - 1] for place in kept)]
    return head, [[row[0], row[1], *(row[place] for place in kept)] for row in rows]


def _tables(measured: Measured) -> list[str]:
    found = (listing(measured, all_of=True, columns=columns) for columns in parts_of(measured.experiment))
    return [_markdown(*one) for one in found if one[1]]


def _note(measured: Measured) -> str:
    text = "± is the deviation over seeds."
    if measured.experiment.reported:
        text += " Differences are ours − paper, in points of accuracy or in seconds."
    return text


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [
        "| " + " | ".join(name.removeprefix(">") for name in headings) + " |",
        "|" + "|".join("---:" if name.startswith(">") else "---" for name in headings) + "|",
        *("| " + " | ".join(cell.replace("|", "\\|").replace("\xa0", " ") for cell in row) + " |" for row in rows),
    ]
    return "\n".join(lines)
