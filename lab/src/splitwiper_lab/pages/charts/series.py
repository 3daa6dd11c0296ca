"""What charts show: series of values over an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

STYLES = 8
"""The number of styles (colour, marker and dash together) that can be distinguished."""


def plainly(value: float) -> str:
    """Format a number for an axis.

    >>> plainly(1500.0), plainly(0.05), plainly(0.0)
    ('1,500', '0.05', '0')
    """
    # below a thousand, six digits are enough for any tick
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


def share(value: float) -> str:
    r"""Format a share for an axis, in per cent.

    >>> share(0.25)
    '25\xa0%'
    """
    return f"{100 * value:.4g}\xa0%"


@dataclass(frozen=True)
class Axis:
    """The settings of one axis.

    Attributes:
        title: the quantity, with its unit.
        show: formats a value.
        log: logarithmic; zero is then at its foot, apart from all other values.
        low: the axis begins there or lower.
        high: the axis ends there or higher.
        marks: values to mark, with their names, instead of round numbers; the axis reaches to all of them.
    """

    title: str
    show: Callable[[float], str] = plainly
    log: bool = False
    low: float | None = None
    high: float | None = None
    marks: Mapping[float, str] | None = None


@dataclass(frozen=True)
class Spot:
    """A point: position, value, deviation over seeds, and whether a line leads to it from the previous one."""

    x: float
    y: float | None
    around: float | None = None
    joined: bool = True

    @property
    def is_there(self) -> bool:
        """Whether it can be drawn."""
        # an accuracy over no rows is not a number
        return self.y is not None and math.isfinite(self.y) and math.isfinite(self.x)

    @property
    def value(self) -> float:
        """The value of a spot that is there."""
        return self.y or 0.0

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of its deviation; both are the value if it has none."""
        around = self.around or 0.0
        return self.value - around, self.value + around


@dataclass(frozen=True)
class Series:
    """Points of one series; ``style`` selects colour, marker and dash."""

    name: str
    spots: tuple[Spot, ...]
    style: int

    @property
    def there(self) -> list[Spot]:
        """The spots that can be drawn."""
        return [spot for spot in self.spots if spot.is_there]

    @property
    def highest(self) -> float:
        """The highest value, or 0 if nothing can be drawn."""
        return max((spot.value for spot in self.there), default=0.0)

    def runs(self) -> Iterator[list[Spot]]:
        """Yield the spots that a line joins; a missing value is a gap."""
        run: list[Spot] = []
        for spot in self.spots:
            if run and not (spot.is_there and spot.joined):
                yield run
                run = []
            if spot.is_there:  # also one that no line leads to: the next spot may be joined to it
                run.append(spot)
        if run:
            yield run
