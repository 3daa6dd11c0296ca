"""Documents from templates: what is put into them is text, whatever it holds."""

from __future__ import annotations

from splitwiper_lab.evaluation.tradeoff import Point
from splitwiper_lab.pages.document import document
from splitwiper_lab.pages.partition import Grid, page
from splitwiper_lab.pages.tradeoff import markdown


def test_text_is_escaped_and_cleaned() -> None:
    hostile = '<b title="&">\ud800\x1b'
    grid = Grid(hostile, hostile, {"a": ("x",)}, {"north": "a"}, {"north": {"x": 1}}, {"north": {}})
    found = page(grid)
    assert "&lt;b title=&#34;&amp;&#34;&gt;\ufffd\ufffd" in found and "<b " not in found


def test_markdown_is_not_escaped_as_html() -> None:
    point = Point("γ < 3 | none", 0.5, 0.5, 0.0, 1, 1, 1, 0, None, None, ())
    text = markdown({"source": "a", "model": "b"}, [point], "x < y", ["cpu"], "page.html")
    assert "| γ < 3 \\| none |" in text and "\nx < y\n" in text


def test_style_sheets_are_as_they_were_written() -> None:
    assert "&" not in document("charts.css") and "{" in document("charts.css")
