"""Figures with a line for each system: accuracies, membership inference, and clients' time to forget."""

from __future__ import annotations

from collections.abc import Sequence

from splitwiper_lab.evaluation.comparison import SeedSpread, SummaryRow
from splitwiper_lab.evaluation.reproduction.cells import systems_of
from splitwiper_lab.pages.charts import Axis, Series, Spot, dots, key, share
from splitwiper_lab.pages.reproduction.collected import Measured
from splitwiper_lab.pages.reproduction.quantities import reported
from splitwiper_lab.pages.reproduction.series import Panel, Panels, Place, series_of

_ROOM = 188.0
_TICKS = {0.01: "10 ms", 1.0: "1 s", 60.0: "1 min", 3600.0: "1 h", 36000.0: "10 h"}
_SHARES = {0.0: "0\xa0%", 0.5: "50\xa0%", 1.0: "100\xa0%"}
_PAPER = {"the paper's figure": 7}
"""The name of the paper's figures in a legend, and their style."""


def _by_system(
    measured: Measured,
    quantities: dict[str, tuple[str, int]],
    x: Axis,
    *,
    reference: float | None = None,
    joined: bool = True,
) -> list[Panel]:
    """Draw, for each condition, dots of some quantities (with their titles and styles) over systems."""
    drawn = []
    for condition in measured.experiment.conditions:
        names = [system.name for system in systems_of(measured.experiment, condition)]
        places = [Place(float(number), condition.name, name) for number, name in enumerate(names)]
        series = []
        for quantity, (title, style) in quantities.items():
            series.append(series_of(measured, quantity, places, title, style))
        hollow = [series[0].name] if len(series) > 1 else []  # what was before is hollow, what is now is filled
        papers = []
        for place in places:
            # the paper says one figure for each system, which is of the last quantity
            value = reported(measured.experiment, condition.name, quantity, place.system)
            if value is not None:
                # apart from the bar, which is between our own figures
                papers.append(Spot(place.x, value / 100, joined=False))
        if papers:
            series += [Series(name, tuple(papers), style) for name, style in _PAPER.items()]
        label = f"{condition.name}: {x.title}, by system"
        chart = dots(names, series, label=label, x=x, reference=reference, joined=joined, hollow=hollow)
        drawn.append(Panel(condition.name, chart))
    return drawn


def _paper(measured: Measured) -> dict[str, int]:
    """Return the paper's entry in the legend, if its figures are shown."""
    return _PAPER if measured.experiment.reported and measured.experiment.scale == "full" else {}


def kept(measured: Measured) -> Panels:
    """Draw accuracy on other labels before and after forgetting, by system."""
    quantities = {"learned.retained": ("before forgetting", 1), "unlearned.retained": ("after forgetting", 0)}
    paper = " The paper's figure is after forgetting." if _paper(measured) else ""
    caption = (
        f"Accuracy on all labels but the forgotten one.{paper} The axis does not begin at 0. Bars: the deviation over "
        "seeds."
    )
    legend = key(dict(quantities.values()) | _paper(measured), hollow=["before forgetting"], lines=False)
    return Panels(_by_system(measured, quantities, Axis("accuracy on other labels", share)), caption, legend)


def rates(measured: Measured) -> Panels:
    """Draw hit rates with false alarms, and the AUC."""
    hits = {"two models.false_positive_rate": ("false alarms", 1), "two models.hit_rate": ("hits", 0)}
    shares = _by_system(measured, hits, Axis("share of rows called members", share, low=0.0, high=1.0))
    auc = {"two models.auc": ("AUC", 0)}
    areas = _by_system(measured, auc, Axis("AUC", low=0.4, high=0.6), reference=0.5, joined=False)
    both = []
    for hit_panel, area_panel in zip(shares, areas, strict=True):  # both have a panel for each condition, in order
        both.append(Panel(f"{hit_panel.title}: hits and false alarms", hit_panel.chart))
        both.append(Panel(f"{area_panel.title}: AUC", area_panel.chart))
    caption = (
        "Hits: forgotten rows that the attack calls members. False alarms: rows never learned that it calls so too. "
        "Where the two are equal, the attack knows nothing; its AUC is then 0.5, the dashed line. Bars: the deviation "
        "over seeds."
    )
    legend = key({"hits": 0, "false alarms": 1} | _paper(measured), hollow=["false alarms"], lines=False)
    return Panels(both, caption, legend)


def side_by_side(lines: Sequence[SummaryRow]) -> Panels:
    """Draw accuracy after forgetting, and clients' time to forget, by system and unlearning method."""
    forgotten, retained, others, requester = list[Spot](), list[Spot](), list[Spot](), list[Spot]()
    for place, line in enumerate(lines):
        forgotten.append(Spot(float(place), line.forgotten.mean, line.forgotten.deviation))
        retained.append(Spot(float(place), line.retained.mean, line.retained.deviation))
        others.append(_sum(place, line.others_seconds, line.others_sending))
        requester.append(_sum(place, line.requester_seconds, line.requester_handling, line.requester_sending))
    accuracy = [Series("forgotten label", tuple(forgotten), 1), Series("other labels", tuple(retained), 0)]
    times = [Series("other clients together", tuple(others), 4), Series("requesting client", tuple(requester), 2)]
    shares = Axis("accuracy", share, low=0.0, high=1.0, marks=_SHARES)
    clock = Axis("time (logarithmic)", log=True, marks=_marks([*others, *requester]))
    drawn = []
    for title, series, x in (
        ("Accuracy after forgetting", accuracy, shares),
        ("Clients' time to forget", times, clock),
    ):
        first, second = series
        chart = dots(list(map(_name, lines)), series, label=f"{title}, by system", x=x, hollow=[first.name], room=_ROOM)
        # in reading order: what was measured last is drawn on top
        legend = key({second.name: second.style, first.name: first.style}, hollow=[first.name], lines=False)
        drawn.append(Panel(title, chart, legend))
    caption = "Time: computing, files and sending; no time at all is drawn at 0. Bars: the deviation over seeds."
    return Panels(drawn, caption)


def _name(line: SummaryRow) -> str:
    system = line.system.replace(", interleaved", "")
    return system if line.unlearning in (line.kind, "retraining") else f"{system}: {line.unlearning}"


def _sum(place: int, *parts: SeedSpread) -> Spot:
    return Spot(float(place), sum(part.mean or 0.0 for part in parts))


def _marks(spots: Sequence[Spot]) -> dict[float, str]:
    """Return tick marks at round times within the values' range, and at 0 if there is a 0."""
    values = [spot.value for spot in spots]
    # a logarithmic axis has no place for zero
    low, high = min(filter(None, values), default=1.0), max(values, default=1.0)
    marks = {0.0: "0"} if 0.0 in values else {}
    for tick, name in _TICKS.items():
        if low / 4 <= tick <= high * 2:  # a little beyond the values, so that the axis does not end at a dot
            marks[tick] = name
    return marks
