"""The paper's tables with our figures: effectiveness and efficiency, forgetting samples, membership inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from splitwiper.formats import NONE
from splitwiper_lab.evaluation.comparison import SeedSpread
from splitwiper_lab.evaluation.reproduction import Condition, Experiment
from splitwiper_lab.evaluation.reproduction.cells import systems_of
from splitwiper_lab.evaluation.reproduction.outcomes import over_seeds
from splitwiper_lab.pages.html.markup import Markup, el
from splitwiper_lab.pages.html.parts import row_head, scroll, table, th, tr
from splitwiper_lab.pages.reproduction.collected import Measured
from splitwiper_lab.pages.reproduction.parts import folded
from splitwiper_lab.pages.reproduction.quantities import difference, reported, signed, told

Row = tuple[str, tuple[str, ...]]
"""The title of a row, and the quantities in its cells."""
_PHASES = (("Learning", "learned"), ("Unlearning", "unlearned"))


def _effective(phase: str) -> list[Row]:
    return [
        ("Requesting client: training / sending, s", (f"{phase}.requester.training", f"{phase}.requester.sending")),
        ("Other clients: training / sending, s", (f"{phase}.others.training", f"{phase}.others.sending")),
        (
            "Forgotten label: accuracy, %" if phase == "unlearned" else "Label to forget: accuracy, %",
            (f"{phase}.forgotten",),
        ),
        ("Other labels: accuracy, %", (f"{phase}.retained",)),
    ]


def effectiveness(measured: Measured) -> Markup:
    """Render a table for each condition, in the paper's layout: systems across, learning above unlearning."""
    found = over_seeds(measured.experiment, measured.results)
    parts: list[Markup] = []
    for condition in measured.experiment.conditions:
        if not any(name == condition.name for name, _ in found):
            continue
        blocks = [(title, _effective(phase), condition) for title, phase in _PHASES]
        drawn = _table(measured.experiment, found, blocks, condition.name)
        parts.append(folded(condition.name, drawn) if parts else el("div", el("h3", condition.name), drawn))
    return el("div", *parts, *_note(measured))


def samples(measured: Measured) -> Markup:
    """Render a table for each group of conditions: accuracy before and after forgetting, for each share δ."""
    found = over_seeds(measured.experiment, measured.results)
    rows: list[Row] = [
        ("The label, before, %", ("learned.forgotten",)),
        ("The label, after, %", ("unlearned.forgotten",)),
        ("Other labels, before, %", ("learned.retained",)),
        ("Other labels, after, %", ("unlearned.retained",)),
    ]
    parts: list[Markup] = []
    for group, conditions in _groups(measured, found).items():
        blocks = [(f"δ = {c.x:g}" if c.x is not None else c.name, rows, c) for c in conditions]
        parts += [el("h3", group or "All"), _table(measured.experiment, found, blocks, group or "accuracy")]
    return el("div", *parts, *_note(measured))


def membership(measured: Measured) -> Markup:
    """Render hit rates with false alarms, and the AUC, for each share δ."""
    found = over_seeds(measured.experiment, measured.results)
    parts: list[Markup] = []
    attacks = {"two models": "Asking both models", "labels only": "Seeing labels only"}
    for group, conditions in _groups(measured, found).items():
        blocks = []
        for condition in conditions:
            for attack, title in attacks.items():
                names = [f"{attack}.{what}" for what in ("hit_rate", "false_positive_rate", "auc")]
                if any(names[0] in values for (c, _), values in found.items() if c == condition.name):
                    words = ("Hit rate, %", "False alarms, %", "AUC")
                    rows: list[Row] = [(word, (name,)) for word, name in zip(words, names, strict=True)]
                    where = f"δ = {condition.x:g}" if condition.x is not None else condition.name
                    blocks.append((f"{where}. {title}", rows, condition))
        parts += [el("h3", group or "All"), _table(measured.experiment, found, blocks, group or "hit rates")]
    return el("div", *parts, *_note(measured))


def _groups(measured: Measured, found: Mapping[tuple[str, str], object]) -> dict[str, list[Condition]]:
    there = {condition for condition, _ in found}
    out: dict[str, list[Condition]] = {}
    for condition in measured.experiment.conditions:
        if condition.name in there:
            out.setdefault(condition.group, []).append(condition)
    return out


def _table(
    experiment: Experiment,
    found: Mapping[tuple[str, str], Mapping[str, SeedSpread]],
    blocks: Sequence[tuple[str, Sequence[Row], Condition]],
    caption: str,
) -> Markup:
    wanted = set()
    for _, _, condition in blocks:
        wanted |= {system.name for system in systems_of(experiment, condition)}
    systems = [s.name for s in experiment.systems if s.name in wanted]
    head = tr(th(""), *(th(name, class_="n") for name in systems))
    body: list[Markup] = []
    for title, rows, condition in blocks:
        body.append(tr(th(title, scope="colgroup"), *(el("td") for _ in systems), class_="part"))
        for name, quantities in rows:
            cells = []
            for system in systems:
                values = found.get((condition.name, system), {})
                cells.append(_cell(experiment, condition.name, system, quantities, values))
            body.append(tr(row_head(name), *cells))
    return scroll(table([head], body, caption=caption, class_="systems"), caption)


def _cell(
    experiment: Experiment, condition: str, system: str, names: Sequence[str], values: Mapping[str, SeedSpread]
) -> Markup:
    """Render our figure, and below it the paper's figure and the difference, if there is one."""
    every = [told(values.get(name), name) for name in names]
    ours = " / ".join(one.split(" ±")[0] for one in every) if len(every) > 1 else every[0]
    papers = [reported(experiment, condition, name, system) for name in names]
    extra = []
    if any(paper is not None for paper in papers):
        said = " / ".join(NONE if paper is None else f"{paper:g}" for paper in papers)
        extra.append(el("span", f"paper {said}", class_="paper"))
        if values:
            away = (difference(values.get(n), paper, n) for n, paper in zip(names, papers, strict=True))
            text = " / ".join(signed(value, n) for value, n in zip(away, names, strict=True))
            extra.append(el("span", text, class_="paper", title="ours − paper"))
    return el("td", ours, *extra, class_="n", title=" / ".join(every) if len(every) > 1 and values else None)


def _note(measured: Measured) -> list[Markup]:
    experiment = measured.experiment
    texts = []
    if any(found.deviation is not None for values in _spreads(measured) for found in values.values()):
        texts.append("± is the deviation over seeds.")
    if experiment.reported and experiment.scale == "full":
        texts.append("Below our figure: the paper's, then ours − paper (points of accuracy, or seconds).")
    elif experiment.reported:
        texts.append(f"The paper's figures are left out at scale {experiment.scale}: data and networks are smaller.")
    return [el("p", " ".join(texts), class_="caption")] if texts else []


def _spreads(measured: Measured) -> list[dict[str, SeedSpread]]:
    return list(over_seeds(measured.experiment, measured.results).values())
