"""Elements of drawings: lines, text that fits, round numbers on axes."""

from __future__ import annotations

import math
import unicodedata

from splitwiper_lab.pages.drawing.markup import Markup, el


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


def ticks(top: float, most: int = 5) -> list[float]:
    """Return round steps from 0 to at least ``top``.

    >>> ticks(2.3)
    [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    """
    if not math.isfinite(top) or top <= 0:
        return [0.0, 1.0]
    # the step is 1, 2, 2.5, 5 or 10 times a power of ten: the smallest of these that needs at most `most` steps
    scale = 10.0 ** math.floor(math.log10(top / most))
    step = next(scale * factor for factor in (1, 2, 2.5, 5, 10) if scale * factor * most >= top * (1 - 1e-9))
    return [round(step * place, 12) for place in range(math.ceil(top / step - 1e-9) + 1)]


def fit(text: str, width: float, em: float) -> str:
    """Shorten a text with an ellipsis so that it fits.

    >>> fit("north", 100, 12), fit("a very long name", 60, 12)
    ('north', 'a very…')
    """
    if text_width(text, em) <= width:
        return text
    while text and text_width(text + "…", em) > width:
        text = text[:-1]
    return text.rstrip() + "…"


def text_width(text: str, em: float) -> float:
    """Estimate, generously, the width of a text set at ``em`` pixels."""
    return em * sum(1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.58 for letter in text)
