"""The frame and the style sheet that pages share with the product's report."""

from __future__ import annotations

from pathlib import Path

from splitwiper import report
from splitwiper.report.page import clean, templates
from splitwiper_lab.pages.drawing.markup import join

CSS = (Path(report.__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")
"""All of the report's style sheet."""
PALETTE = CSS.partition("\n* {")[0]
"""Colours by name, light and dark."""
_DRAWINGS = """
svg { display: block; width: 100%; height: auto; font-family: inherit; font-variant-numeric: tabular-nums; }
svg text { fill: var(--ink); font-size: 13px; }
svg .tick { fill: var(--soft); font-size: 12px; }
svg .value {
  font-size: 11.5px; fill: var(--soft); paint-order: stroke; stroke: var(--card); stroke-width: 3px;
}
svg .remark { fill: var(--mark); font-size: 11px; }
svg .strong { font-weight: 650; fill: var(--ink); }
svg .value.strong { stroke: var(--band); }
svg .name.strong { fill: var(--mark); }
.grid { stroke: var(--rule); } .axis { stroke: var(--first-edge); }
.band { fill: var(--band); }
.bar.first { fill: var(--first); stroke: var(--first-edge); } .bar.second { fill: var(--second); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.line.first { stroke: var(--first-edge); stroke-dasharray: 5 4; } .line.second { stroke: var(--second); }
.dot.first { fill: var(--card); stroke: var(--first-edge); stroke-width: 1.5; }
.dot.second { fill: var(--second); }
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
