"""Elements of drawings for pages of the laboratory."""

from __future__ import annotations

from splitwiper.report.charts import fit, text_width, ticks
from splitwiper.report.markup import Markup, el

__all__ = ["fit", "stroke", "svg", "text", "text_width", "ticks"]


def svg(width: float, height: float, label: str, *parts: Markup, class_: str | None = None) -> Markup:
    """Build a scalable drawing with an accessible name."""
    return el("svg", *parts, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label, class_=class_)


def text(x: float, y: float, words: str, class_: str, *, anchor: str = "start", full: str = "") -> Markup:
    """Draw a line of text; ``full`` becomes its tooltip if the text was shortened."""
    tip = [el("title", full)] if full and full != words else []
    return el("text", *tip, words, x=x, y=y, class_=class_, text_anchor=None if anchor == "start" else anchor)


def stroke(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """Draw a straight line."""
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)
