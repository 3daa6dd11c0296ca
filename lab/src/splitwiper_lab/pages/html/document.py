"""The frame and the style sheet that pages share with the product's report."""

from __future__ import annotations

from pathlib import Path

from splitwiper import report
from splitwiper.report.page import clean, templates
from splitwiper_lab.pages.html.markup import join

CSS = (Path(report.__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")
"""All of the report's style sheet."""
PALETTE = CSS.partition("\n* {")[0]
"""Colours by name, light and dark."""
_DRAWINGS = """
svg { display: block; width: 100%; height: auto; font-family: inherit; font-variant-numeric: tabular-nums; }
.slim { display: none; }
@media screen and (max-width: 44rem) {
  .wide { display: none; } .slim { display: block; }
  figure svg { max-width: 28rem; }
}
"""
"""Rules for drawings as SVG."""
_FRAME = """
{%- extends "page.html" %}{% block style %}{{ style | safe }}{% endblock %}{% block content %}{{ content | safe }}
{% endblock %}"""


def document(title: str, *parts: str, style: str = "") -> str:
    """Build a page in the frame that reports have, with an additional style sheet."""
    frame = templates().from_string(_FRAME)
    return clean(frame.render(title=title, style=_DRAWINGS + style, content=join(parts)))
