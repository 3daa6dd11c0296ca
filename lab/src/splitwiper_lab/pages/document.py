"""Documents from the templates in ``templates/``, and what goes into them as text in the same form on every page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader

from splitwiper.report.page import clean, templates

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Headings and rows; a heading that begins with ``>`` is of a column of numbers."""


def document(template: str, **values: Any) -> str:
    """Render a template with these values. The same values give the same bytes."""
    return clean(_environment().get_template(template).render(**values))


@cache
def _environment() -> Environment:
    # The report's own environment stays as it is: only the overlay also finds the laboratory's templates.
    loaders = [PackageLoader("splitwiper_lab.pages"), PackageLoader("splitwiper.report")]
    return templates().overlay(loader=ChoiceLoader(loaders))


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""Return a table as Markdown.

    >>> print(markdown_table(("name", ">rows"), [("a|b", "1")]))
    | name | rows |
    |---|---:|
    | a\|b | 1 |
    """
    titles, rules = [], []
    for heading in headings:
        titles.append(heading.removeprefix(">"))
        rules.append("---:" if heading.startswith(">") else "---")
    lines = [_line(titles), f"|{'|'.join(rules)}|"]
    for row in rows:
        lines.append(_line([cell.replace("|", "\\|") for cell in row]))  # a name may hold what ends a cell
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def described(about: Mapping[str, Any], *, without: Collection[str] = ()) -> str:
    """Return the conditions of a measurement as text; those that are not set say nothing.

    >>> described({"clients": 5, "rows": None, "quick": False, "seed": 1}, without=["seed"])
    'clients 5'
    """
    return ", ".join(f"{name} {value}" for name, value in about.items() if name not in without and value)
