"""The paper's figures with our measurements, one function for each way to show an experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from operator import attrgetter

from splitwiper_lab.evaluation.reproduction import Condition
from splitwiper_lab.evaluation.reproduction.experiment import Subject
from splitwiper_lab.evaluation.reproduction.outcomes import curves
from splitwiper_lab.pages.charts import STYLES, Axis, Series, bars, key, lines, share
from splitwiper_lab.pages.reproduction.by_system import kept, rates
from splitwiper_lab.pages.reproduction.collected import Measured
from splitwiper_lab.pages.reproduction.series import (
    Panel,
    Panels,
    Place,
    clients_of,
    over_conditions,
    series_of,
    spot,
    styles,
)

_SPREAD = "Bars and bands: the deviation over seeds."
_CLOSE = 0.15
"""Lines this far below the best are left out of the enlarged chart."""
_TIMES = {"training": "learned.clients.training", "sending": "learned.clients.sending"}


def draw_figure(measured: Measured, look: str) -> Panels | None:
    """Draw the figure of an experiment with results; None if it is shown as tables only."""
    draw = _FIGURES.get(look)
    return draw(measured) if draw and measured.results else None


def _sampled(measured: Measured) -> Panels | None:
    """Draw accuracy on the label whose samples were forgotten, and on others, over their share δ."""
    systems = measured.experiment.names
    names = styles(systems[:STYLES])  # more lines than styles could not be told apart
    drawn = []
    for group, conditions in measured.experiment.groups.items():
        for title, quantity in (("the label", "unlearned.forgotten"), ("other labels", "unlearned.retained")):
            series = over_conditions(measured, quantity, conditions, names)
            if series[0].spots:
                x = Axis("share δ of the label's rows forgotten", low=0.0, high=1.0)
                label = f"{group}: accuracy on {title} after forgetting a share of its samples, by system"
                drawn.append(Panel(f"{group}: {title}", lines(series, label=label, x=x, y=Axis("accuracy", share))))
    caption = "Accuracy after forgetting. The axis does not begin at 0. Bars: the deviation over seeds."
    if len(systems) > len(names):
        caption += " The table has the systems that are not drawn."
    return Panels(drawn, caption, key(names)) if drawn else None


def _times(measured: Measured) -> Panels:
    """Draw a client's time to learn: over the server's epochs if conditions have a place there, else over γ."""
    if any(condition.x is not None for condition in measured.experiment.conditions):
        return _times_over_epochs(measured)
    return _times_over_gamma(measured)


def _times_over_epochs(measured: Measured) -> Panels:
    names = styles(measured.experiment.names)
    drawn = []
    for group, conditions in measured.experiment.groups.items():
        for title, quantity in _TIMES.items():
            series = over_conditions(measured, quantity, conditions, names, per_client=True)
            log = _needs_log(series)
            y = Axis("seconds, mean of clients", log=log, low=None if log else 0.0)
            label = f"{group}: a client's {title} time over the server's epochs, by system"
            chart = lines(series, label=label, x=Axis("epochs M of the server", low=0.0), y=y)
            drawn.append(Panel(f"{group}: {title}", chart))
    return Panels(drawn, f"Time of a client to learn, in the mean over clients. {_SPREAD}", key(names))


def _needs_log(series: Sequence[Series]) -> bool:
    """Return whether values differ so much that a linear axis would hide the small ones."""
    positive = []
    for one in series:
        for place in one.there:
            if place.value > 0:
                positive.append(place.value)
    return bool(positive) and max(positive) > 20 * min(positive)


def _times_over_gamma(measured: Measured) -> Panels:
    experiment = measured.experiment
    names = styles(condition.name for condition in experiment.conditions)
    positions = _positions(experiment.systems)
    in_order = sorted(experiment.systems, key=lambda system: system.x is None)  # ranges of γ come last
    drawn = []
    for title, quantity in _TIMES.items():
        series = []
        for condition in experiment.conditions:
            places = []
            for system in in_order:
                # a line would otherwise have a gap at a γ that was not measured under this condition
                if quantity in measured.spreads.get((condition.name, system.name), {}):
                    x, scale = positions[system.name][0], 1 / clients_of(condition)
                    places.append(Place(x, condition.name, system.name, scale, joined=system.x is not None))
            series.append(series_of(measured, quantity, places, condition.name, names[condition.name]))
        axis = Axis("expansion γ", marks=dict(positions.values()))
        label = f"A client's {title} time over the expansion of labels"
        chart = lines(series, label=label, x=axis, y=Axis("seconds, mean of clients", low=0.0))
        drawn.append(Panel(title.capitalize(), chart))
    caption = f"Time of a client to learn with SplitWiper+. Γp: one to three for each label. {_SPREAD}"
    return Panels(drawn, caption, key(names))


def _positions(systems: Sequence[Subject]) -> dict[str, tuple[float, str]]:
    """Return systems' positions on an axis of γ, with their names there; those without a γ come after all others."""
    positions = {}
    last = 1.0 + max(system.x or 0.0 for system in systems)
    for system in systems:
        if system.x is None:
            positions[system.name] = (last, system.name.split(",")[0])
        else:
            positions[system.name] = (float(system.x), f"{system.x:g}")
    return positions


def _by_group(
    measured: Measured, quantity: str, condition: Condition, positions: Mapping[str, float], names: Mapping[str, int]
) -> list[Series]:
    """Return a series for each group of systems, in one condition; systems without a position are left out."""
    series = []
    for group, style in names.items():
        places = []
        for system in measured.experiment.systems:
            if system.group == group and system.name in positions:
                places.append(Place(positions[system.name], condition.name, system.name))
        series.append(series_of(measured, quantity, places, group, style))
    return series


def _accuracy(measured: Measured) -> Panels:
    """Draw accuracy over ε, a line for each expansion: once all of them, and once those close to the best."""
    names = styles(map(attrgetter("group"), measured.experiment.systems))
    epsilons = {system.name: float(system.x) for system in measured.experiment.systems if system.x is not None}
    marks = {epsilon: f"{epsilon:g}" for epsilon in epsilons.values()}
    drawn = []
    for condition in measured.experiment.conditions:
        series = _by_group(measured, "learned.retained", condition, epsilons, names)
        highest = max(one.highest for one in series)
        best = [one for one in series if one.highest > highest - _CLOSE]
        # once for the whole picture, and once for what differs at its top
        for title, some, low in (("from 0", series, 0.0), ("those close to the best", best, None)):
            label = f"{condition.name}: accuracy on other labels over ε, by expansion, {title}"
            # each ε is marked itself: round numbers would fall between them
            x = Axis("ε (less noise to the right)", log=True, marks=marks)
            chart = lines(some, label=label, x=x, y=Axis("accuracy", share, low=low))
            drawn.append(Panel(f"{condition.name}: {title}", chart))
    caption = f"Accuracy on all labels but the one to forget, after learning. {_SPREAD}"
    return Panels(drawn, caption, key(names))


def _clusters(attacks: Mapping[str, str], goals: Mapping[str, float]) -> Callable[[Measured], Panels]:
    """Return a function that draws how many labels attacks group, over γ.

    ``attacks`` also say what the attacker knows; ``goals`` are the paper's shares of perfect groups at γ = 3.
    """

    def draw(measured: Measured) -> Panels:
        experiment = measured.experiment
        names = styles(map(attrgetter("group"), experiment.systems))
        positions = _positions(experiment.systems)
        # groups of bars stand at 0, 1, 2 …, in the order of γ
        across = [name for _, name in sorted(set(positions.values()))]
        places = {system: float(across.index(name)) for system, (_, name) in positions.items()}
        drawn = []
        for condition, (attack, knows), what in product(
            experiment.conditions, attacks.items(), ("perfect", "inclusive")
        ):
            series = _by_group(measured, f"{attack}.{what}", condition, places, names)
            # the paper gives a figure for perfect groups at γ = 3 only
            goal = {"3": goals[attack]} if what == "perfect" else None
            label = f"{condition.name}: labels grouped ({what}) by an attacker {knows}, over γ"
            y = Axis(f"{what} groups", share, low=0.0, high=1.0)
            chart = bars(across, series, label=label, x="expansion γ", y=y, goals=goal)
            drawn.append(Panel(f"{condition.name}, {knows}: {what}", chart))
        caption = f"Lower hides more. Dashed: the paper's figure at γ = 3, where it says one. {_SPREAD}"
        return Panels(drawn, caption, key(names))

    return draw


def _curves(measured: Measured) -> Panels:
    """Draw accuracy after each epoch, and the share of answers that still change."""
    names = styles(measured.experiment.names)
    quantities = (("accuracy", "accuracy", "accuracy"), ("changed", "answers that change", "share of test rows"))
    drawn = []
    for condition, (quantity, title, unit) in product(measured.experiment.conditions, quantities):
        traced = curves(measured.results, quantity)
        series = []
        for name, style in names.items():
            curve = traced.get((condition.name, name), [])
            spots = [spot(float(epoch), spread) for epoch, spread in enumerate(curve, start=1)]
            series.append(Series(name, tuple(spots), style))  # systems without curves keep their style
        label = f"{condition.name}: {title} over epochs, by system"
        chart = lines(series, label=label, x=Axis("epoch", low=0.0), y=Axis(unit, share, low=0.0), bands=True)
        drawn.append(Panel(f"{condition.name}: {title}", chart))
    return Panels(drawn, f"After each epoch of training. {_SPREAD}", key(names))


def _consensus(measured: Measured) -> Panels:
    """Draw the time and the messages that clients take to agree on labels, over their number."""
    names = styles(measured.experiment.names)
    drawn = []
    for title, quantity, scale, unit in (
        ("Time", "seconds", 1000.0, "milliseconds"),
        ("Messages", "messages", 1.0, "messages"),
    ):
        series = over_conditions(measured, quantity, measured.experiment.conditions, names, scale=scale)
        label = f"{title} to agree on labels over the number of clients"
        chart = lines(series, label=label, x=Axis("clients", low=0.0), y=Axis(unit, low=0.0))
        drawn.append(Panel(title, chart))
    return Panels(drawn, "Median of several agreements.", key(names))


_FIGURES: dict[str, Callable[[Measured], Panels | None]] = {
    "": kept,
    "samples": _sampled,
    "times": _times,
    "accuracy": _accuracy,
    "clusters": _clusters({"elbow": "elbow method", "kmeans Q": "knowing Q"}, {"elbow": 0.1, "kmeans Q": 0.3}),
    "birch": _clusters({"birch": "knowing nothing", "birch Q": "knowing Q"}, {"birch": 0.0, "birch Q": 0.0}),
    "curves": _curves,
    "membership": rates,
    "consensus": _consensus,
}
