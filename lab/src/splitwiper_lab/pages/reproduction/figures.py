"""The paper's figures with our measurements, one function for each way to show an experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

from splitwiper_lab.evaluation.comparison import SeedSpread
from splitwiper_lab.evaluation.reproduction import Condition
from splitwiper_lab.evaluation.reproduction.experiment import Subject
from splitwiper_lab.evaluation.reproduction.outcomes import curves as traced
from splitwiper_lab.evaluation.reproduction.outcomes import over_seeds
from splitwiper_lab.pages.charts import Axis, Series, Spot, bars, lines, share
from splitwiper_lab.pages.html.markup import Markup
from splitwiper_lab.pages.reproduction.accuracies import kept, rates, sampled
from splitwiper_lab.pages.reproduction.collected import Measured
from splitwiper_lab.pages.reproduction.parts import panels, styles

Found = Mapping[tuple[str, str], Mapping[str, SeedSpread]]
"""Quantities over seeds, by condition and system."""
_SPREAD = "Bars and bands: the deviation over seeds."
_CLOSE = 0.15
"""Lines this far below the best are left out of the enlarged chart."""


def figures(measured: Measured, look: str) -> list[Markup]:
    """Draw the figures of an experiment with results; empty if it is shown as tables only."""
    draw = _FIGURES.get(look)
    return draw(measured) if draw and measured.results else []


def _spread(found: Found, condition: str, system: str, what: str) -> SeedSpread | None:
    return found.get((condition, system), {}).get(what)


def spot(x: float, spread: SeedSpread | None, scale: float = 1.0, *, joined: bool = True) -> Spot:
    """Convert a quantity over seeds to a point of a chart."""
    if spread is None or spread.mean is None:
        return Spot(x, None, joined=joined)
    return Spot(x, spread.mean * scale, spread.deviation * scale if spread.deviation else None, joined)


def _log(series: Sequence[Series]) -> bool:
    """Return whether values differ so much that a linear axis would hide the small ones."""
    there = [s.y for one in series for s in one.spots if s.y is not None and s.y > 0]
    return bool(there) and max(there) > 20 * min(there)


def _clients(condition: Condition) -> int:
    given = condition.work.get("clients", 5)
    return given if isinstance(given, int) else len(given)


_TIMES = (("Training", "learned.clients.training"), ("Sending", "learned.clients.sending"))


def _times(measured: Measured) -> list[Markup]:
    over_epochs = any(condition.x is not None for condition in measured.experiment.conditions)
    return _times_epochs(measured) if over_epochs else _times_gamma(measured)


def _times_epochs(measured: Measured) -> list[Markup]:
    experiment, found = measured.experiment, over_seeds(measured.experiment, measured.results)
    names = styles([s.name for s in experiment.systems])
    drawn = []
    for group in dict.fromkeys(c.group for c in experiment.conditions):
        conditions = [c for c in experiment.conditions if c.group == group and c.x is not None]
        for title, what in _TIMES:
            series = []
            for name, style in names.items():
                spots = []
                for condition in conditions:
                    spread = _spread(found, condition.name, name, what)
                    spots.append(spot(condition.x or 0.0, spread, 1 / _clients(condition)))
                series.append(Series(name, tuple(spots), style))
            low = None if _log(series) else 0.0
            y = Axis("seconds, mean of clients", log=_log(series), low=low)
            x = Axis("epochs M of the server", low=0.0)
            label = f"{group}: a client's {title.lower()} time over the server's epochs, by system"
            drawn.append((f"{group}: {title.lower()}", lines(series, label=label, x=x, y=y)))
    caption = f"Time of a client to learn, in the mean over clients. {_SPREAD}"
    return [panels(drawn, caption=caption, names=names)]


def _times_gamma(measured: Measured) -> list[Markup]:
    experiment, found = measured.experiment, over_seeds(measured.experiment, measured.results)
    names = styles([c.name for c in experiment.conditions])
    places = _places(experiment.systems)
    in_order = sorted(experiment.systems, key=lambda system: system.x is None)  # ranges of γ come last
    drawn = []
    for title, what in _TIMES:
        series = []
        for condition in experiment.conditions:
            spots = []
            for system in in_order:
                spread = _spread(found, condition.name, system.name, what)
                x, scale = places[system.name][0], 1 / _clients(condition)
                one = spot(x, spread, scale, joined=system.x is not None)
                if one.is_there:  # lines bridge missing values
                    spots.append(one)
            series.append(Series(condition.name, tuple(spots), names[condition.name]))
        axis = Axis("expansion γ", marks=dict(places.values()))
        label = f"A client's {title.lower()} time over the expansion of labels"
        drawn.append((title, lines(series, label=label, x=axis, y=Axis("seconds, mean of clients", low=0.0))))
    caption = f"Time of a client to learn with SplitWiper+. Γp: one to three for each label. {_SPREAD}"
    return [panels(drawn, caption=caption, names=names)]


def _places(systems: Sequence[Subject]) -> dict[str, tuple[float, str]]:
    """Place systems on an axis of γ; those without a γ come after all others."""
    numbers = sorted({s.x for s in systems if s.x is not None})
    last = (numbers[-1] if numbers else 0.0) + 1
    places = {}
    for system in systems:
        if system.x is None:
            places[system.name] = (last, system.name.split(",")[0])
        else:
            places[system.name] = (float(system.x), f"{system.x:g}")
    return places


def _by_group(
    found: Found,
    condition: Condition,
    systems: Sequence[Subject],
    names: Mapping[str, int],
    *,
    what: str,
    x: Callable[[Subject], float],
) -> list[Series]:
    """Return a series for each group of systems.

    Args:
        found: the quantities over seeds.
        condition: the condition.
        systems: the systems of all groups.
        names: the groups, with their styles.
        what: the quantity.
        x: places a system on the axis.
    """
    spots: dict[str, list[Spot]] = {group: [] for group in names}
    for system in systems:
        spots[system.group].append(spot(x(system), _spread(found, condition.name, system.name, what)))
    return [Series(group, tuple(spots[group]), style) for group, style in names.items()]


def _accuracy(measured: Measured) -> list[Markup]:
    """Draw accuracy over ε, a line for each expansion: once all of them, and once those close to the best."""
    experiment, found = measured.experiment, over_seeds(measured.experiment, measured.results)
    names = styles([s.group for s in experiment.systems])
    with_epsilon = [s for s in experiment.systems if s.x is not None]
    marks = {float(s.x or 0.0): f"{s.x:g}" for s in with_epsilon}
    drawn = []
    for condition in experiment.conditions:
        series = _by_group(
            found, condition, with_epsilon, names, what="learned.retained", x=lambda system: system.x or 0.0
        )
        most = {one.name: max((s.y for s in one.spots if s.y is not None), default=0.0) for one in series}
        best = [one for one in series if most[one.name] > max(most.values()) - _CLOSE]
        for title, some, low in (("from 0", series, 0.0), ("those close to the best", best, None)):
            label = f"{condition.name}: accuracy on other labels over ε, by expansion, {title}"
            x = Axis("ε (less noise to the right)", log=True, marks=marks)
            chart = lines(some, label=label, x=x, y=Axis("accuracy", share, low=low))
            drawn.append((f"{condition.name}: {title}", chart))
    caption = f"Accuracy on all labels but the one to forget, after learning. {_SPREAD}"
    return [panels(drawn, caption=caption, names=names)]


def _clusters(attacks: Sequence[tuple[str, str]], goals: dict[str, float]) -> Callable[[Measured], list[Markup]]:
    def draw(measured: Measured) -> list[Markup]:
        experiment, found = measured.experiment, over_seeds(measured.experiment, measured.results)
        names = styles([s.group for s in experiment.systems])
        places = _places(experiment.systems)
        across = [name for _, name in sorted(set(places.values()))]

        def place(system: Subject) -> float:
            return float(across.index(places[system.name][1]))

        there = {condition for condition, _ in found}
        drawn = []
        for condition, (attack, told), what in product(experiment.conditions, attacks, ("perfect", "inclusive")):
            if condition.name not in there:
                continue
            series = _by_group(found, condition, experiment.systems, names, what=f"{attack}.{what}", x=place)
            goal = {"3": goals[attack]} if what == "perfect" and attack in goals else None
            label = f"{condition.name}: labels grouped ({what}) by an attacker {told}, over γ"
            y = Axis(f"{what} groups", share, low=0.0, high=1.0)
            chart = bars(across, series, label=label, x="expansion γ", y=y, goals=goal)
            drawn.append((f"{condition.name}, {told}: {what}", chart))
        caption = "Lower hides more. Dashed: the paper's figure at γ = 3, where it says one. " + _SPREAD
        return [panels(drawn, caption=caption, names=names)]

    return draw


def _curves(measured: Measured) -> list[Markup]:
    """Draw accuracy after each epoch, and the share of answers that still change."""
    experiment = measured.experiment
    names = styles([s.name for s in experiment.systems])
    what = (("accuracy", "accuracy", "accuracy"), ("changed", "answers that change", "share of test rows"))
    drawn = []
    for condition, (quantity, title, unit) in product(experiment.conditions, what):
        found = traced(measured.results, quantity)
        series = []
        for name, style in names.items():
            curve = found.get((condition.name, name), [])
            spots = [spot(float(epoch), spread) for epoch, spread in enumerate(curve, start=1)]
            series.append(Series(name, tuple(spots), style))
        if any(one.spots for one in series):
            label = f"{condition.name}: {title} over epochs, by system"
            chart = lines(series, label=label, x=Axis("epoch", low=0.0), y=Axis(unit, share, low=0.0), bands=True)
            drawn.append((f"{condition.name}: {title}", chart))
    return [panels(drawn, caption=f"After each epoch of training. {_SPREAD}", names=names)]


def _consensus(measured: Measured) -> list[Markup]:
    experiment, found = measured.experiment, over_seeds(measured.experiment, measured.results)
    names = styles([s.name for s in experiment.systems])
    conditions = [c for c in experiment.conditions if c.x is not None]
    drawn = []
    for title, what, scale, unit in (
        ("Time", "seconds", 1000.0, "milliseconds"),
        ("Messages", "messages", 1.0, "messages"),
    ):
        series = []
        for name, style in names.items():
            spots = [spot(c.x or 0.0, _spread(found, c.name, name, what), scale) for c in conditions]
            series.append(Series(name, tuple(spots), style))
        label = f"{title} to agree on labels over the number of clients"
        drawn.append((title, lines(series, label=label, x=Axis("clients", low=0.0), y=Axis(unit, low=0.0))))
    return [panels(drawn, caption="Median of several agreements.", names=names)]


_FIGURES: dict[str, Callable[[Measured], list[Markup]]] = {
    "": kept,
    "samples": sampled,
    "times": _times,
    "accuracy": _accuracy,
    "clusters": _clusters((("elbow", "elbow method"), ("kmeans Q", "knowing Q")), {"elbow": 0.1, "kmeans Q": 0.3}),
    "birch": _clusters((("birch", "knowing nothing"), ("birch Q", "knowing Q")), {"birch": 0.0, "birch Q": 0.0}),
    "curves": _curves,
    "membership": rates,
    "consensus": _consensus,
}
