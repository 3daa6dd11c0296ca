"""Tables and conditions as text, in the same form on every page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Headings and rows; a heading that begins with ``>`` is of a column of numbers."""


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""Return a table as Markdown.

    >>> print(markdown_table(("name", ">rows"), [("a|b", "1")]))
    | name | rows |
    |---|---:|
    | a\|b | 1 |
    """
    lines = [_line([heading.removeprefix(">") for heading in headings])]
    rules = ["---:" if heading.startswith(">") else "---" for heading in headings]
    lines.append(f"|{'|'.join(rules)}|")
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
