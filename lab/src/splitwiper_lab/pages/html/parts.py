"""Building blocks the sections share: tables in their own scrolling box, figures, legends, lists of facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from splitwiper_lab.pages.html.markup import Markup, el, join


def section(number: int, title: str, *body: str) -> Markup:
    """Build a numbered section, so that people can refer to it."""
    key = f"section-{number}"
    heading = el("h2", el("span", str(number), class_="number"), title, id=key)
    return el("section", heading, *body, aria_labelledby=key)


def scroll(table: Markup, label: str) -> Markup:
    """Build a box in which a wide table scrolls by itself, also with the keyboard."""
    return el("div", table, class_="scroll", role="region", aria_label=label, tabindex=0)


def th(*content: str, **attributes: object) -> Markup:
    """Build a column heading."""
    return el("th", *content, scope=attributes.pop("scope", "col"), **attributes)


def row_head(*content: str) -> Markup:
    """Build a row heading."""
    return th(*content, scope="row")


def td(content: str, class_: str | None = None, *, label: str | None = None) -> Markup:
    """Build a cell; ``class_="n"`` aligns numbers right, ``label`` precedes the content where rows are stacked."""
    return el("td", content, class_=class_, data_label=label)


def num(content: str, *, label: str | None = None) -> Markup:
    """Build a cell with a number; a plain zero has a style of its own."""
    return td(content, "n zero" if content == "0" else "n", label=label)


def table(head: Iterable[Markup], body: Iterable[Markup], *, caption: str, **more: object) -> Markup:
    """Build a table from its heading rows and body rows; the caption is for screen readers."""
    return el(
        "table",
        el("caption", caption, class_="unseen"),
        el("thead", *head),
        el("tbody", *body),
        **more,
    )


def tr(*cells: Markup, class_: str | None = None) -> Markup:
    """Build a table row."""
    return el("tr", *cells, class_=class_)


def figure(*drawings: Markup, caption: str = "") -> Markup:
    """Build a figure of drawings with a caption below."""
    return el("figure", *drawings, *([el("figcaption", caption)] if caption else []))


def facts(pairs: Mapping[str, str] | Sequence[tuple[str, str]], *, mono: bool = False) -> Markup:
    """Build a list of names and values, stacked on a phone."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return el(
        "dl",
        join(el("div", el("dt", str(name)), el("dd", str(value) or "–")) for name, value in items),
        class_="facts mono" if mono else "facts",
    )
