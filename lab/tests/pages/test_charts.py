"""Charts at their edges: one point, none, gaps, zeros on a logarithmic axis; and what their SVG may not hold."""

from __future__ import annotations

import math
import re

import pytest

from report.reading import drawn
from splitwiper_lab.pages.charts import STYLES, Axis, Series, Spot, bars, dots, figure, key, lines, share, svg, tip
from splitwiper_lab.pages.charts.style import SERIES, VARIABLES

X, Y = Axis("epochs"), Axis("seconds")


def line(*values: float | None, style: int = 0, around: float | None = None) -> Series:
    return Series("one", tuple(Spot(float(x), y, around) for x, y in enumerate(values)), style)


def tips(chart: str) -> list[str | None]:
    return [node.text for node in drawn(chart).iter("title")]


def texts(chart: str) -> list[str | None]:
    return [node.text for node in drawn(chart).iter("text")]


def strokes(chart: str, style: int) -> list[list[tuple[float, float]]]:
    """The corners of every line in a series' colour; matplotlib draws upwards, SVG counts downwards."""
    found = []
    for node in drawn(chart).iter("path"):
        if f"stroke: var(--s{style})" in node.get("style", "") and not node.get("transform"):  # markers are moved
            found.append([(float(x), float(y)) for x, y in re.findall(r"[ML] ([\d.-]+) ([\d.-]+)", node.get("d", ""))])
    return found


def test_a_line_has_a_marker_for_every_value_and_says_it() -> None:
    chart = lines([line(1.0, 2.0, 4.0)], label="times", x=X, y=Y)
    assert tips(chart) == ["one, 0: 1", "one, 1: 2", "one, 2: 4"]
    ((*corners,),) = strokes(chart, 0)
    assert len(corners) == 3 and corners[0][1] > corners[1][1] > corners[2][1]
    assert drawn(chart).get("aria-label") == "times" and drawn(chart).get("role") == "img"


@pytest.mark.parametrize("values", [(), (None,), (math.nan, math.inf)], ids=["none", "missing", "not finite"])
def test_nothing_to_draw_is_an_empty_frame(values: tuple[float | None, ...]) -> None:
    chart = lines([line(*values)], label="nothing", x=X, y=Y)
    assert tips(chart) == [] and "seconds" in texts(chart) and "epochs" in texts(chart)
    assert drawn(lines([], label="nothing", x=X, y=Axis("", log=True))).get("aria-label") == "nothing"


def test_a_missing_value_leaves_a_gap() -> None:
    found = strokes(lines([line(1.0, 1.5, None, 2.0, 3.0, 2.5)], label="gap", x=X, y=Y), 0)
    assert [len(corners) for corners in found] == [2, 3]


def test_a_spot_that_is_not_joined_stands_alone() -> None:
    one = Series("one", (Spot(1, 1.0), Spot(2, 2.0), Spot(3, 1.5, joined=False)), 0)
    chart = lines([one], label="apart", x=Axis("γ", marks={1: "1", 2: "2", 3: "Γp"}), y=Y)
    assert [len(corners) for corners in strokes(chart, 0) if len(corners) > 1] == [2]
    assert {"1", "2", "Γp"} <= set(texts(chart)) and tips(chart)[-1] == "one, Γp: 1.5"


def test_zero_lies_at_the_foot_of_a_logarithmic_axis() -> None:
    chart = lines([line(0.0, 0.01, 10.0, 1000.0)], label="log", x=X, y=Axis("s", log=True))
    ((zero, low, middle, high),) = strokes(chart, 0)
    assert zero[1] > low[1] + 5 and low[1] - middle[1] == pytest.approx(1.5 * (middle[1] - high[1]), rel=0.05)
    assert "0" in texts(chart)


def test_a_logarithmic_axis_without_anything_positive_is_linear() -> None:
    ((top, bottom),) = strokes(lines([line(0.0, -2.0)], label="log", x=X, y=Axis("s", log=True)), 0)
    assert top[1] < bottom[1]


def test_an_axis_begins_where_it_is_told() -> None:
    told = texts(lines([line(0.93, 0.95)], label="all", x=X, y=Axis("%", share, low=0.0)))
    assert "0\xa0%" in told and "50\xa0%" not in texts(lines([line(0.93, 0.95)], label="part", x=X, y=Axis("%", share)))


def test_an_axis_says_values_below_a_hundredth() -> None:
    marks = {0.05: "0.05", 0.125: "0.125", 0.5: "0.5"}
    told = texts(lines([line(1.0, 2.0)], label="fine", x=Axis("ε", log=True, marks=marks), y=Axis("s", low=0.001)))
    assert set(marks.values()) <= set(told)


def test_deviations_are_whiskers_or_bands() -> None:
    whiskers = lines([line(1.0, 2.0, around=0.5)], label="whiskers", x=X, y=Y)
    bands = lines([line(1.0, 2.0, around=0.5)], label="bands", x=X, y=Y, bands=True)
    assert tips(whiskers) == tips(bands) == ["one, 0: 1 ± 0.5", "one, 1: 2 ± 0.5"]
    assert "fill-opacity: 0.16" in bands and "fill-opacity: 0.16" not in whiskers
    assert len(strokes(whiskers, 0)) == 1 + 2 and len(strokes(bands, 0)) == 1


def test_every_style_has_a_sign_a_dash_and_a_colour_of_its_own() -> None:
    assert len({str(key({"x": style})) for style in range(STYLES)}) == STYLES
    assert len(set(SERIES)) == STYLES and len(set(VARIABLES)) == len(set(VARIABLES.values()))


def test_dots_have_a_line_for_each_name() -> None:
    many = [Series("before", (Spot(0, 0.9, 0.01), Spot(1, 0.8)), 1), Series("after", (Spot(0, 0.95), Spot(1, None)), 0)]
    names = ["north <&>", "a name that is much too long for it, even on two lines of this chart"]
    chart = dots(names, many, label="d", x=Axis("%", share), joined=True, hollow=["before"])
    assert "north <&>, before: 90\xa0% ± 1\xa0%" in tips(chart) and "north <&>" in texts(chart)
    assert any(text and text.endswith("…") for text in texts(chart))
    assert drawn(dots([], [], label="none", x=X, reference=0.5)).get("aria-label") == "none"


def test_bars_tell_zero_from_missing() -> None:
    some = [Series("a", (Spot(0, 0.0), Spot(1, None)), 0), Series("b", (Spot(0, 0.5, 0.1), Spot(1, 1.0)), 1)]
    chart = bars(["1", "3"], some, label="b", x="γ", y=Axis("%", share, low=0, high=1), goals={"3": 0.1, "9": 0.1})
    assert tips(chart) == ["1, a: 0\xa0%", "1, b: 50\xa0% ± 10\xa0%", "3, b: 100\xa0%"]
    assert chart.count("stroke-dasharray") == 1
    drawn(bars([], [], label="b", x="γ", y=Axis("%", share)))


def test_names_are_text_whatever_they_hold() -> None:
    hostile = ["$x_1$ costs $2", "</title><script>", "病院", "a\x00b"]
    one = [Series("s$^$", tuple(Spot(float(n), 1.0) for n in range(len(hostile))), 0)]
    chart = dots(hostile, one, label='"><script>', x=Axis("$\\frac$"))
    assert {"$x_1$ costs $2", "病院", "a\ufffdb"} <= set(texts(chart)) and "<script" not in chart
    assert tips(chart)[0] == "$x_1$ costs $2, s$^$: 1"


def test_a_drawing_is_complete_in_itself_and_the_same_again() -> None:
    def draw(label: str) -> str:
        return lines([line(1.0, 2.0, around=0.2)], label=label, x=X, y=Axis("s", log=True))

    assert draw("a") == draw("a")
    for word in ("url(", "http", "<style", "font-family", "xlink", "#0072b2", " id="):
        assert word not in draw("a")


def test_a_drawing_of_ones_own() -> None:
    drawing, axes = figure(100, 50)
    (dot,) = axes.plot(1, 1, "o")
    tip(dot, "here & there")
    chart = svg(drawing, "mine")
    assert tips(chart) == ["here & there"] and drawn(chart).get("viewBox") == "0 0 100 50"
