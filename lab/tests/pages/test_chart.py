"""Charts of several series, at their edges: one point, none, gaps, zeros on a logarithmic axis."""

from __future__ import annotations

import math

import pytest

from report.reading import drawn
from splitwiper_lab.pages.drawing.axes import Axis, Scale, share
from splitwiper_lab.pages.drawing.chart import STYLES, Series, Spot, key, lines, marker

X, Y = Axis("epochs"), Axis("seconds")


def line(*values: float | None, style: int = 0, around: float | None = None) -> Series:
    return Series("one", tuple(Spot(float(x), y, around) for x, y in enumerate(values)), style)


def paths(chart: str, css: str) -> list[str]:
    return [node.get("d", "") for node in drawn(chart).iter() if css in node.get("class", "").split()]


def test_a_line_has_a_dot_for_every_value_and_says_it() -> None:
    chart = lines([line(1.0, 2.0, 4.0)], label="times", x=X, y=Y)
    assert [node.text for node in drawn(chart).iter("title")] == ["one, 0: 1", "one, 1: 2", "one, 2: 4"]
    assert paths(chart, "run")[0].count("L") == 2


def test_one_point_is_a_dot_in_the_middle() -> None:
    root = drawn(lines([line(3.0)], label="one", x=X, y=Y))
    (dot,) = root.iter("circle")
    assert 52 < float(dot.get("cx", "0")) < 368 and 24 < float(dot.get("cy", "0")) < 218


@pytest.mark.parametrize("values", [(), (None,), (math.nan, math.inf)], ids=["none", "missing", "not finite"])
def test_nothing_to_draw_is_an_empty_frame(values: tuple[float | None, ...]) -> None:
    root = drawn(lines([line(*values)], label="nothing", x=X, y=Y))
    assert not list(root.iter("circle")) and any(node.text == "seconds" for node in root.iter("text"))
    assert drawn(lines([], label="nothing", x=X, y=Axis("", log=True))).get("aria-label") == "nothing"


def test_a_missing_value_leaves_a_gap() -> None:
    (path,) = paths(lines([line(1.0, None, 2.0, 3.0)], label="gap", x=X, y=Y), "run")
    assert path.count("M") == 2 and path.count("L") == 1


def test_a_spot_that_is_not_joined_stands_alone() -> None:
    one = Series("one", (Spot(1, 1.0), Spot(2, 2.0), Spot(3, 1.5, joined=False)), 0)
    (path,) = paths(lines([one], label="apart", x=Axis("γ", marks={1: "1", 2: "2", 3: "Γp"}), y=Y), "run")
    assert path.count("M") == 2


def test_zero_lies_at_the_foot_of_a_logarithmic_axis() -> None:
    scale = Scale(Axis("s", log=True), [0.0, 0.01, 1000.0], 200.0, 0.0)
    assert scale.at(0.0) == scale.at(-1.0) == 200.0 and scale.at(0.01) < 190 and scale.at(1000.0) > 0
    assert scale.ticks()[0] == (0.0, "0") and (1.0, "1") in scale.ticks()
    chart = lines([line(0.0, 0.01, 1000.0, around=0.5)], label="log", x=X, y=Axis("s", log=True))
    assert len(list(drawn(chart).iter("circle"))) == 3


def test_a_logarithmic_axis_without_anything_positive_is_linear() -> None:
    scale = Scale(Axis("s", log=True), [0.0, -2.0], 200.0, 0.0)
    assert not scale.log and scale.at(0.0) < scale.at(-2.0)


def test_an_axis_begins_where_it_is_told() -> None:
    assert Scale(Axis("%", share, low=0.0), [0.93, 0.95], 0, 1).ticks()[0] == (0.0, "0\xa0%")
    assert Scale(Axis("%", share), [0.93, 0.95], 0, 1).ticks()[0][0] == pytest.approx(0.93)


def test_an_axis_reaches_to_all_its_marks() -> None:
    scale = Scale(Axis("ε", log=True, marks={0.05: "0.05", 0.1: "0.1", 0.5: "0.5"}), [0.1, 0.5], 0.0, 100.0)
    places = [scale.at(value) for value, _ in scale.ticks()]
    assert 0 < places[0] < places[1] - 10 < places[2] - 20 < 80


def test_deviations_are_bars_or_bands() -> None:
    with_bars = lines([line(1.0, 2.0, around=0.5)], label="bars", x=X, y=Y)
    assert with_bars.count('class="whisker c0"') == 6 and "around" not in with_bars
    with_bands = lines([line(1.0, 2.0, around=0.5)], label="bands", x=X, y=Y, bands=True)
    assert len(paths(with_bands, "around")) == 1 and "whisker" not in with_bands


def test_every_style_has_a_sign_and_a_dash_of_its_own() -> None:
    signs = {str(marker(0, 0, style)) for style in range(STYLES)}
    assert len(signs) == STYLES and len({str(key({"x": s})) for s in range(STYLES)}) == STYLES
