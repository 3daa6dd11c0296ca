"""The figure that compares systems: accuracies, and clients' time to forget."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from splitwiper_lab.evaluation.comparison import SeedSpread, SummaryRow
from splitwiper_lab.pages.charts import Axis, Series, Spot, dots, key, share
from splitwiper_lab.pages.html.markup import Markup, el
from splitwiper_lab.pages.html.parts import figure

_ROOM = 188.0
_TICKS = {0.01: "10 ms", 1.0: "1 s", 60.0: "1 min", 3600.0: "1 h", 36000.0: "10 h"}
_SHARES = {0.0: "0\xa0%", 0.5: "50\xa0%", 1.0: "100\xa0%"}


def side_by_side(lines: Sequence[SummaryRow]) -> Markup:
    """Draw accuracy after forgetting, and clients' time to forget, by system and unlearning method."""
    accuracy = [
        _series("forgotten label", 1, lines, lambda line: line.forgotten),
        _series("other labels", 0, lines, lambda line: line.retained),
    ]
    times = [
        _series("other clients together", 4, lines, lambda x: _sum(x.others_seconds, x.others_sending)),
        _series(
            "requesting client",
            2,
            lines,
            lambda x: _sum(x.requester_seconds, x.requester_handling, x.requester_sending),
        ),
    ]
    shares = Axis("accuracy", share, low=0.0, high=1.0, marks=_SHARES)
    clock = Axis("time (logarithmic)", log=True, marks=_marks(times))
    cells = []
    for title, series, x in (
        ("Accuracy after forgetting", accuracy, shares),
        ("Clients' time to forget", times, clock),
    ):
        hollow = [series[0].name]
        names = [_name(line) for line in lines]
        chart = dots(names, series, label=f"{title}, by system", x=x, hollow=hollow, room=_ROOM)
        legend = key({one.name: one.style for one in reversed(series)}, hollow=hollow, lines=False)
        cells.append(el("div", el("h4", title), legend, chart))
    caption = "Time: computing, files and sending; no time at all is drawn at 0. Bars: the deviation over seeds."
    return figure(el("div", *cells, class_="panels"), caption=caption)


def _series(name: str, style: int, lines: Sequence[SummaryRow], value: Callable[[SummaryRow], SeedSpread]) -> Series:
    found = [value(line) for line in lines]
    return Series(name, tuple(Spot(float(n), one.mean, one.deviation) for n, one in enumerate(found)), style)


def _name(line: SummaryRow) -> str:
    system = line.system.replace(", interleaved", "")
    return system if line.unlearning in (line.kind, "retraining") else f"{system}: {line.unlearning}"


def _sum(*parts: SeedSpread) -> SeedSpread:
    return SeedSpread(sum(part.mean or 0.0 for part in parts), None, parts[0].count)


def _marks(series: Sequence[Series]) -> dict[float, str]:
    """Return tick marks at round times within the values' range, and at 0 if there is a 0."""
    there = [spot.y for one in series for spot in one.spots if spot.y is not None]
    low, high = min((y for y in there if y > 0), default=1.0), max(there, default=1.0)
    inside = {value: name for value, name in _TICKS.items() if low / 4 <= value <= high * 2}
    return ({0.0: "0"} if 0.0 in there else {}) | inside
