"""The figure that compares systems: accuracies, and clients' time to forget."""

from __future__ import annotations

from collections.abc import Sequence

from splitwiper_lab.evaluation.comparison import SeedSpread, SummaryRow
from splitwiper_lab.pages.charts import Axis, Series, Spot, dots, key, share
from splitwiper_lab.pages.reproduction.series import Panel, Panels

_ROOM = 188.0
_TICKS = {0.01: "10 ms", 1.0: "1 s", 60.0: "1 min", 3600.0: "1 h", 36000.0: "10 h"}
_SHARES = {0.0: "0\xa0%", 0.5: "50\xa0%", 1.0: "100\xa0%"}


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
        chart = dots(
            [_name(line) for line in lines],
            series,
            label=f"{title}, by system",
            x=x,
            hollow=[first.name],
            room=_ROOM,
        )
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
    low, high = min(filter(None, values), default=1.0), max(values, default=1.0)
    marks = {0.0: "0"} if 0.0 in values else {}
    for tick, name in _TICKS.items():
        if low / 4 <= tick <= high * 2:
            marks[tick] = name
    return marks
