"""One experiment as a section: description, figures, tables, verdicts, provenance, and missing cells."""

from __future__ import annotations

from splitwiper.formats import plural
from splitwiper_lab.evaluation.reproduction import CheckVerdict, judged
from splitwiper_lab.evaluation.reproduction.checks import CHECKS
from splitwiper_lab.pages.html.markup import Markup, el
from splitwiper_lab.pages.html.parts import section
from splitwiper_lab.pages.reproduction.collected import Measured, made_told
from splitwiper_lab.pages.reproduction.figures import figures
from splitwiper_lab.pages.reproduction.formulas import formulas
from splitwiper_lab.pages.reproduction.parts import folded, grid, judged_as, verdict_pill
from splitwiper_lab.pages.reproduction.quantities import in_words, listing, look
from splitwiper_lab.pages.reproduction.tables import effectiveness, membership, samples

_LONG = 3
"""The most figures of a verdict that are shown without a click."""


def command(measured: Measured) -> str:
    """Return the command that reproduces an experiment."""
    data = "" if measured.experiment.scale == "smoke" else " --data DIR"
    return f"splitwiper reproduce {measured.experiment.id} --scale {measured.experiment.scale}{data}"


def experiment_section(number: int, measured: Measured) -> Markup:
    """Render the section of an experiment, with or without results."""
    experiment = measured.experiment
    parts = [el("p", f"In the paper: {experiment.paper}.", class_="where"), el("p", experiment.about)]
    if experiment.notes:
        parts.append(el("p", experiment.notes, class_="note"))
    if measured.results:
        parts += [_body(measured.there), _verdicts(measured), _made(measured)]
    else:
        parts.append(el("p", f"Not measured yet at scale {experiment.scale}.", class_="empty none-yet"))
    parts += [_covered(measured), el("pre", command(measured), tabindex=0)]
    anchor = el("span", id=experiment.id)
    return section(number, experiment.title, anchor, *parts)


def _body(measured: Measured) -> Markup:
    kind = look(measured.experiment)
    drawn = figures(measured, kind)
    if kind.startswith("exponents"):
        drawn.append(formulas(measured, kind.split()[-1]))
    elif kind in ("", "samples", "membership"):
        make = {"": effectiveness, "samples": samples, "membership": membership}[kind]
        return el("div", *drawn, make(measured))
    headings, rows = listing(measured)
    return el("div", *drawn, folded("Every figure as a table", grid(headings, rows, measured.experiment.title)))


def _verdicts(measured: Measured) -> Markup:
    experiment = measured.experiment
    parts = []
    for title, names in (("What must hold", experiment.checks), ("What the paper says", experiment.claims)):
        if names:
            found = (_verdict(measured, one) for one in judged(experiment, measured.results, names))
            parts.append(el("div", el("h3", title), el("ul", *found, class_="verdicts")))
    return el("div", *parts, class_="judged two" if len(parts) == 2 else "judged")


def _verdict(measured: Measured, verdict: CheckVerdict) -> Markup:
    found = list(CHECKS[verdict.name][1](measured.experiment, measured.results))
    told = [in_words(text) for ok, text in found if not ok] or [in_words(text) for _, text in found]
    line = [verdict_pill(judged_as(verdict.held)), " ", in_words(f"{verdict.says[:1].upper()}{verdict.says[1:]}.")]
    if len(told) > _LONG:
        title = f"{plural(len(told), 'figure')}{' that are not so' if verdict.held is False else ''}"
        return el("li", *line, folded(title, el("ul", *(el("li", one) for one in told))))
    return el("li", *line, *([el("p", "; ".join(told) + ".", class_="small")] if told else []))


def _made(measured: Measured) -> Markup:
    return el("p", made_told([result.made for result in measured.results]), class_="small made")


def _covered(measured: Measured) -> Markup:
    """Say how many cells are measured, and which are missing."""
    done, wanted = measured.done, measured.wanted
    missing = [one for one in measured.covered if one.done < one.wanted]
    text = f"{done:,} of {plural(wanted, 'cell')} measured."
    if not missing:
        return el("p", f"{text} Nothing is missing.", class_="small covered")
    items = (el("li", f"{one.condition}; {one.system}: {one.done} of {plural(one.wanted, 'seed')}") for one in missing)
    return folded(f"{text} What is missing", el("ul", *items, class_="missing"))
