"""Markup that is safe by construction."""

from __future__ import annotations

from splitwiper_lab.pages.html.markup import Markup, el, escape, join


def test_text_is_escaped_and_markup_is_not() -> None:
    inner = el("b", "<i>", title='"')
    assert inner == '<b title="&quot;">&lt;i&gt;</b>'
    assert join(("<", inner)) == "&lt;" + inner
    assert isinstance(escape("x"), Markup)
    assert escape("\ud800\x1b") == "\ufffd\ufffd"
