"""Measured quantities as series of a chart, and the charts of a figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from splitwiper_lab.evaluation.comparison import SeedSpread
from splitwiper_lab.evaluation.reproduction import Condition
from splitwiper_lab.pages.charts import STYLES, Series, Spot
from splitwiper_lab.pages.reproduction.collected import Measured

_STYLES = {"γ = 1": 0, "SplitWiper": 0, "Vanilla": 1, "γ = 2": 2, "γ = 3": 3, "U-shaped": 4, "Γp": 5, "no noise": 6}
"""Styles that systems keep on the whole page, by the start of their names."""


@dataclass(frozen=True)
class Panel:
    """A chart of a figure, with its title, and a legend if it has one of its own."""

    title: str
    chart: Markup
    legend: str = ""


@dataclass(frozen=True)
class Panels:
    """Charts side by side, below the legend that they share."""

    panels: Sequence[Panel]
    caption: str
    legend: str = ""


@dataclass(frozen=True)
class Place:
    """One point of a series: where it lies on the axis, and which cell its value is from.

    Attributes:
        x: its position.
        condition: the name of the condition.
        system: the name of the system.
        scale: what the value is multiplied by.
        joined: whether a line leads to it.
    """

    x: float
    condition: str
    system: str
    scale: float = 1.0
    joined: bool = True


def series_of(measured: Measured, quantity: str, places: Iterable[Place], name: str, style: int) -> Series:
    """Return a quantity over some places, in order; places without a value are gaps."""
    spots = []
    for place in places:
        spread = measured.spreads.get((place.condition, place.system), {}).get(quantity)
        spots.append(spot(place.x, spread, place.scale, joined=place.joined))
    return Series(name, tuple(spots), style)


def spot(x: float, spread: SeedSpread | None, scale: float = 1.0, *, joined: bool = True) -> Spot:
    """Convert a quantity over seeds to a point of a chart."""
    if spread is None or spread.mean is None:
        return Spot(x, None, joined=joined)
    return Spot(x, spread.mean * scale, spread.deviation * scale if spread.deviation else None, joined)


def over_conditions(
    measured: Measured,
    quantity: str,
    conditions: Sequence[Condition],
    names: dict[str, int],
    *,
    scale: float = 1.0,
    per_client: bool = False,
) -> list[Series]:
    """Return a series for each system, over the values of ``x`` of the conditions."""
    series = []
    for name, style in names.items():
        places = []
        for condition in conditions:
            if condition.x is not None:  # else it has no place on the axis
                places.append(
                    Place(condition.x, condition.name, name, scale / clients_of(condition) if per_client else scale)
                )
        series.append(series_of(measured, quantity, places, name, style))
    return series


def clients_of(condition: Condition) -> int:
    """Return the number of clients; a condition gives it, or their names."""
    given = condition.work.get("clients", 5)
    return given if isinstance(given, int) else len(given)


def styles(names: Iterable[str]) -> dict[str, int]:
    """Assign a style to each name: its own if it has one that is free, or the next free one.

    >>> styles(["U-shaped", "γ = 3, ε = 0.1", "γ = 3, ε = 0.2"])
    {'U-shaped': 4, 'γ = 3, ε = 0.1': 3, 'γ = 3, ε = 0.2': 0}
    """
    assigned: dict[str, int] = {}
    for name in dict.fromkeys(names):
        wanted = 0
        for beginning, style in _STYLES.items():
            if name.startswith(beginning):  # settings follow the name of a system
                wanted = style
                break
        free = sorted(set(range(STYLES)).difference(assigned.values()))
        # with more names than styles, some share one
        assigned[name] = wanted if wanted in free or not free else free[0]
    return assigned
