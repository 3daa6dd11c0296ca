"""HTML and SVG that is safe by construction: text is escaped unless it is already :class:`Markup`."""

from __future__ import annotations

import html
from collections.abc import Iterable

from splitwiper.report.page import clean


class Markup(str):
    """Text that is already HTML or SVG and is passed on unchanged."""

    __slots__ = ()


def escape(text: str) -> Markup:
    """Escape plain text; return markup unchanged.

    >>> escape("<b>")
    '&lt;b&gt;'
    """
    return text if isinstance(text, Markup) else Markup(html.escape(clean(text), quote=True))


def join(parts: Iterable[str]) -> Markup:
    """Concatenate parts, escaping plain text."""
    return Markup("".join(escape(part) for part in parts))


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return html.escape(clean(str(value)), quote=True)


def el(name: str, *children: str, **attributes: object) -> Markup:
    """Build one element. ``class_`` means class, ``aria_label`` aria-label; attributes that are ``None`` are left out.

    >>> el("td", "1 < 2", class_="n", title=None)
    '<td class="n">1 &lt; 2</td>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{join(children)}</{name}>")
