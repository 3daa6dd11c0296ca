"""Markup and text of drawings."""

from __future__ import annotations

from splitwiper_lab.pages.drawing.markup import Markup, el, escape, join
from splitwiper_lab.pages.drawing.svg import fit, text_width


def test_text_is_escaped_and_markup_is_not() -> None:
    inner = el("b", "<i>", title='"')
    assert inner == '<b title="&quot;">&lt;i&gt;</b>'
    assert join(("<", inner)) == "&lt;" + inner
    assert isinstance(escape("x"), Markup)
    assert escape("\ud800\x1b") == "\ufffd\ufffd"


def test_names_are_cut_to_fit() -> None:
    assert fit("病院" * 20, 60, 12).endswith("…")
    assert text_width(fit("w" * 99, 60, 12), 12) <= 60
