"""Charts of names or groups beside each other, at their edges."""

from __future__ import annotations

from report.reading import drawn
from splitwiper_lab.pages.dots import bars, dots
from splitwiper_lab.pages.drawing.axes import Axis, share
from splitwiper_lab.pages.drawing.chart import Series, Spot

X = Axis("epochs")


def test_dots_have_a_line_for_each_name() -> None:
    many = [Series("before", (Spot(0, 0.9, 0.01), Spot(1, 0.8)), 1), Series("after", (Spot(0, 0.95), Spot(1, None)), 0)]
    chart = dots(["north <&>", "a name that is much too long for it"], many, label="d", x=Axis("%", share), joined=True)
    root = drawn(chart)
    assert "before: 90\xa0% ± 1\xa0%" in chart and "north &lt;&amp;&gt;" in chart
    assert any((node.text or "").endswith("…") for node in root.iter("text")) or "much too long" in chart
    assert drawn(dots([], [], label="none", x=X, reference=0.5)).get("aria-label") == "none"


def test_bars_tell_zero_from_missing() -> None:
    some = [Series("a", (Spot(0, 0.0), Spot(1, None)), 0), Series("b", (Spot(0, 0.5, 0.1), Spot(1, 1.0)), 1)]
    chart = bars(["1", "3"], some, label="b", x="γ", y=Axis("%", share, low=0, high=1), goals={"3": 0.1, "9": 0.1})
    assert len(list(drawn(chart).iter("circle"))) == 1 and chart.count("goal-line") == 1
    assert len(list(drawn(bars(["1"], some[:1], label="b", x="γ", y=Axis("%", share))).iter("circle"))) == 1
    drawn(bars([], [], label="b", x="γ", y=Axis("%", share)))
