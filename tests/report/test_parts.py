"""Numbers, escaping, drawings and colours."""

from __future__ import annotations

import math
import re

import pytest

from splitwiper.formats import count, listed, moment, percent, seconds, size
from splitwiper.report import charts
from splitwiper.report.charts import Chart, Pair, Shape
from splitwiper.report.markup import Markup, el, escape, join
from splitwiper.report.style import CSS


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.973, "97.3 %"),
        (0.0, "0.0 %"),
        (1.0, "100.0 %"),
        (0.00001, "<0.1 %"),
        (0.99999, ">99.9 %"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_percent(value: float | None, words: str) -> None:
    assert percent(value).replace("\xa0", " ") == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (0.0004, "<1 ms"),
        (0.0042, "4.2 ms"),
        (0.042, "42 ms"),
        (0.0999, "0.10 s"),
        (0.412, "0.41 s"),
        (9.999, "10.0 s"),
        (59.96, "1 min 00 s"),
        (192, "3 min 12 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (math.inf, "–"),
        (None, "–"),
    ],
)
def test_seconds(value: float | None, words: str) -> None:
    assert seconds(value).replace("\xa0", " ") == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (1, "1 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1_234_567, "1.2 MB"),
        (9_960_000, "10 MB"),
        (999_600_000, "1.0 GB"),
        (5 * 10**15, "5,000 TB"),
        (None, "–"),
    ],
)
def test_size(value: int | None, words: str) -> None:
    assert size(value).replace("\xa0", " ") == words


def test_counts_lists_and_times() -> None:
    assert count(1234567) == "1,234,567"
    assert listed([]) == ""
    assert listed(["a"]) == "‘a’"
    assert moment("2025-01-02") == "2 January 2025"
    assert moment("2025-01-02T03:04:05") == "2 January 2025, 03:04"
    assert moment("2025-01-02T03:04:05+02:00") == "2 January 2025, 03:04 UTC+0200"


def test_text_is_escaped_and_markup_is_not() -> None:
    inner = el("b", "<i>", title='"')
    assert inner == '<b title="&quot;">&lt;i&gt;</b>'
    assert join(("<", inner)) == "&lt;" + inner
    assert isinstance(escape("x"), Markup)
    assert escape("\ud800\x1b") == "\ufffd\ufffd"


def with_class(chart: Chart, name: str) -> list[Shape]:
    return [shape for shape in chart.shapes if name in shape.attributes["class"].split()]


def test_bars_are_as_long_as_their_values() -> None:
    pairs = [Pair("a", 1.0, 0.5), Pair("b", 0.25, 0.0, "gone"), Pair("c", None, math.nan)]
    chart = charts.lying_bars(pairs, label="x", show=percent, series=("B", "A"), top=1.0)
    # The outline of a hollow bar lies inside: one pixel is taken off its rectangle.
    widths = [float(bar.attributes["width"]) + ("first" in bar.attributes["class"]) for bar in with_class(chart, "bar")]
    assert widths == [194.0, 97.0, 48.5]
    assert [bar.tip for bar in with_class(chart, "bar")] == ["a, b: 100.0\xa0%", "a, a: 50.0\xa0%", "b, b: 25.0\xa0%"]
    assert len(with_class(chart, "band")) == 1


def test_columns_stand_on_the_axis() -> None:
    chart = charts.upright_bars([Pair("a", 1.0, 0.5)], label="x", series=("B", "A"))
    (bar,) = with_class(chart, "second")
    assert float(bar.attributes["y"]) + float(bar.attributes["height"]) == 246.0
    assert float(bar.attributes["height"]) == 110.0
    assert [shape.text for shape in with_class(chart, "value")] == ["100", "50.0"]


def test_gaps_break_the_line() -> None:
    values = (1.0, 0.5, math.nan, 0.25)
    chart = charts.curves([("a", values), ("b", ())], label="x", across="epoch", width=360, height=200)
    (line,) = with_class(chart, "line")
    assert line.attributes["d"].count("M") == 2
    assert line.attributes["d"].count("L") == 1
    assert len(with_class(chart, "dot")) == 3


@pytest.mark.parametrize("top", [0.0, -1.0, math.nan, 1e-9, 0.3, 1, 2.3, 7, 99, 12345.0])
def test_ticks_reach_the_top(top: float) -> None:
    steps = charts.ticks(top)
    assert steps[0] == 0
    assert 2 <= len(steps) <= 7
    assert not top > steps[-1] * (1 + 1e-6)


def test_names_are_cut_to_fit() -> None:
    assert charts.fit("病院" * 20, 60, 12).endswith("…")
    assert charts.text_width(charts.fit("w" * 99, 60, 12), 12) <= 60


def _colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


def _contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_contrast(mode: str) -> None:
    light, dark = CSS.split("@media screen and (prefers-color-scheme: dark)", 1)
    colours = _colours(light if mode == "light" else dark)
    text = [("ink", "page"), ("ink", "card"), ("soft", "page"), ("soft", "card"), ("soft", "faint")]
    text += [("ink", f"{tone}-wash") for tone in ("good", "bad", "open", "lost")]
    text += [("soft", f"{tone}-wash") for tone in ("good", "bad", "open", "lost")]
    text += [(tone, f"{tone}-wash") for tone in ("good", "bad", "open", "lost")]
    text += [("card", tone) for tone in ("good", "bad", "open", "lost")]
    text += [("mark", "card"), ("mark", "band"), ("ink", "band"), ("ink", "h1"), ("ink", "h2"), ("ink", "h3")]
    text += [("h4-ink", "h4"), ("h5-ink", "h5")]
    weak = [(a, b) for a, b in text if _contrast(colours[a], colours[b]) < 4.5]
    shapes = [("first-edge", "card"), ("second", "card"), ("first-edge", "band"), ("second", "band")]
    weak += [(a, b) for a, b in shapes if _contrast(colours[a], colours[b]) < 3]
    assert weak == []
