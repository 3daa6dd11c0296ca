"""Numbers, escaping, drawings and colours."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from splitwiper import report
from splitwiper.formats import count, listed, moment, percent, seconds, size
from splitwiper.report import charts
from splitwiper.report.charts import Pair

CSS = (Path(report.__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")


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


def test_bars_are_as_long_as_their_values() -> None:
    pairs = [Pair("a", 4.0, 2.0), Pair("b", 1.0, 0.0, "gone"), Pair("c", None, math.nan)]
    whole = charts.longest(pairs)
    lengths = [charts.part(value, whole) for pair in pairs for value in (pair.first, pair.second)]
    assert lengths == [1.0, 0.5, 0.25, 0.0, 0.0, 0.0]


def test_gaps_break_the_line() -> None:
    values = (1.0, 0.5, math.nan, 0.25)
    chart = charts.curve_chart([("a", values), ("b", ())], label="x", across="epoch")
    line, empty = chart.curves
    assert line.path == "M0.0 0.0L33.33 50.0M100.0 75.0"
    assert [dot.tip for dot in line.dots] == ["a, 1: 1", "a, 2: 0.5", "a, 4: 0.25"]
    assert empty == charts.Curve("", ())


def test_curves_begin_at_zero_and_mark_few_numbers() -> None:
    chart = charts.curve_chart([("a", (2.3,) * 30), ("b", ())], label="x", across="epoch")
    assert chart.up_marks[0] == (0.0, "0") and chart.up_marks[-1] == (100.0, "2.5")
    assert [number for _, number in chart.across_marks] == ["1", "10", "20", "30"]
    assert not charts.curve_chart([("a", (1.0,) * 99)], label="x", across="epoch").curves[0].dots


@pytest.mark.parametrize("top", [0.0, -1.0, math.nan, 1e-9, 0.3, 1, 2.3, 7, 99, 12345.0])
def test_ticks_reach_the_top(top: float) -> None:
    steps = charts.ticks(top)
    assert steps[0] == 0
    assert 2 <= len(steps) <= 7
    assert not top > steps[-1] * (1 + 1e-6)


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
