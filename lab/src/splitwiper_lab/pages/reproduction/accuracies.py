"""Figures by system: accuracies, the effect of forgetting samples, and membership inference."""

from __future__ import annotations

from splitwiper_lab.evaluation.reproduction.cells import systems_of
from splitwiper_lab.evaluation.reproduction.outcomes import over_seeds
from splitwiper_lab.pages.charts import STYLES, Axis, Series, Spot, dots, key, lines, share
from splitwiper_lab.pages.html.markup import Markup, el
from splitwiper_lab.pages.html.parts import figure
from splitwiper_lab.pages.reproduction.collected import Measured
from splitwiper_lab.pages.reproduction.parts import panels, styles
from splitwiper_lab.pages.reproduction.quantities import reported


def _series(measured: Measured, condition: str, names: list[str], what: dict[str, tuple[str, int]]) -> list[Series]:
    """Return a series for each quantity, over systems."""
    found = over_seeds(measured.experiment, measured.results)
    out = []
    for quantity, (title, style) in what.items():
        spots = []
        for place, system in enumerate(names):
            spread = found.get((condition, system), {}).get(quantity)
            spots.append(Spot(float(place), spread.mean if spread else None, spread.deviation if spread else None))
        out.append(Series(title, tuple(spots), style))
    return out


def _by_system(
    measured: Measured,
    quantities: dict[str, tuple[str, int]],
    x: Axis,
    *,
    reference: float | None = None,
    joined: bool = True,
) -> list[tuple[str, Markup]]:
    """Draw, for each measured condition, dots of some quantities over systems."""
    there = {result.cell.condition for result in measured.results}
    out = []
    for condition in measured.experiment.conditions:
        if condition.name not in there:
            continue
        names = [s.name for s in systems_of(measured.experiment, condition)]
        series = _series(measured, condition.name, names, quantities)
        hollow: list[str] = [series[0].name] if len(series) > 1 else []
        papers = []
        for place, system in enumerate(names):
            value = reported(measured.experiment, condition.name, list(quantities)[-1], system)
            if value is not None:
                papers.append(Spot(float(place), value / 100, joined=False))
        if papers:
            series.append(Series("the paper's figure", tuple(papers), 7))
        label = f"{condition.name}: {x.title}, by system"
        chart = dots(names, series, label=label, x=x, reference=reference, joined=joined, hollow=hollow)
        out.append((condition.name, chart))
    return out


def _panels(drawn: list[tuple[str, Markup]], legend: Markup, caption: str) -> Markup:
    cells = [el("div", el("h4", title), chart) for title, chart in drawn]
    return figure(legend, el("div", *cells, class_="panels"), caption=caption)


def _paper(measured: Measured) -> dict[str, int]:
    return {"the paper's figure": 7} if measured.experiment.reported and measured.experiment.scale == "full" else {}


def kept(measured: Measured) -> list[Markup]:
    """Draw accuracy on other labels before and after forgetting, by system."""
    what = {"learned.retained": ("before forgetting", 1), "unlearned.retained": ("after forgetting", 0)}
    drawn = _by_system(measured, what, Axis("accuracy on other labels", share))
    names = dict(what.values()) | _paper(measured)
    legend = key(names, hollow=["before forgetting"], lines=False)
    paper = " The paper's figure is after forgetting." if _paper(measured) else ""
    caption = (
        f"Accuracy on all labels but the forgotten one.{paper} The axis does not begin at 0. Bars: the deviation over "
        "seeds."
    )
    return [_panels(drawn, legend, caption)]


def sampled(measured: Measured) -> list[Markup]:
    """Draw accuracy on the label whose samples were forgotten, and on others, over their share δ."""
    experiment, found = measured.experiment, over_seeds(measured.experiment, measured.results)
    names = styles([s.name for s in experiment.systems][:STYLES])
    drawn = []
    for group in dict.fromkeys(c.group for c in experiment.conditions):
        conditions = [c for c in experiment.conditions if c.group == group and c.x is not None]
        if not any((c.name, name) in found for c in conditions for name in names):
            continue
        for title, what in (("the label", "unlearned.forgotten"), ("other labels", "unlearned.retained")):
            series = []
            for name, style in names.items():
                spots = []
                for condition in conditions:
                    spread = found.get((condition.name, name), {}).get(what)
                    mean, around = (spread.mean, spread.deviation) if spread else (None, None)
                    spots.append(Spot(condition.x or 0.0, mean, around))
                series.append(Series(name, tuple(spots), style))
            x = Axis("share δ of the label's rows forgotten", low=0.0, high=1.0)
            label = f"{group}: accuracy on {title} after forgetting a share of its samples, by system"
            drawn.append((f"{group}: {title}", lines(series, label=label, x=x, y=Axis("accuracy", share))))
    caption = "Accuracy after forgetting. The axis does not begin at 0. Bars: the deviation over seeds."
    if len(experiment.systems) > len(names):
        caption += " The table has the systems that are not drawn."
    return [panels(drawn, caption=caption, names=names)] if drawn else []


def rates(measured: Measured) -> list[Markup]:
    """Draw hit rates with false alarms, and the AUC."""
    hits = {"two models.false_positive_rate": ("false alarms", 1), "two models.hit_rate": ("hits", 0)}
    drawn = _by_system(measured, hits, Axis("share of rows called members", share, low=0.0, high=1.0))
    auc = {"two models.auc": ("AUC", 0)}
    areas = _by_system(measured, auc, Axis("AUC", low=0.4, high=0.6), reference=0.5, joined=False)
    both = []
    for (title, hits_chart), (_, area_chart) in zip(drawn, areas, strict=True):
        both.append((f"{title}: hits and false alarms", hits_chart))
        both.append((f"{title}: AUC", area_chart))
    caption = (
        "Hits: forgotten rows that the attack calls members. False alarms: rows never learned that it calls so too. "
        "Where the two are equal, the attack knows nothing; its AUC is then 0.5, the dashed line. Bars: the deviation "
        "over seeds."
    )
    names = {"hits": 0, "false alarms": 1} | _paper(measured)
    return [_panels(both, key(names, hollow=["false alarms"], lines=False), caption)]
