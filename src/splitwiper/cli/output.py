"""Output for users: tables that fit 80 columns and lose nothing, plain text in pipes, and one JSON object."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import typer
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from splitwiper import formats


def output() -> Console:
    """Return the console for results."""
    # names and messages come from users: nothing in them is markup
    return Console(highlight=False, markup=False, emoji=False)


def errors() -> Console:
    """Return the console for errors and progress."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


class TrimmedTable(Table):
    """A table whose lines end with their last character."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table without the blanks that rich fills its last column with."""
        # copied from a terminal or written to a file, they would make lines differ by what cannot be seen
        segments = cast("Iterable[Segment]", super().__rich_console__(console, options))
        for row in Segment.split_lines(segments):
            while row and not row[-1].text.strip():
                row.pop()
            if row:
                text, style, _ = row.pop()
                row.append(Segment(text.rstrip(), style))
            yield from row
            yield Segment.line()


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, title: str = "", last: str = "") -> Table:
    """Return a table whose cells wrap and are never cut off.

    Args:
        columns: their headings; a leading ``>`` aligns a column to the right.
        rows: the cells.
        title: a line above.
        last: what the last row is set apart as: ``"total"`` draws a line above it.
    """
    drawn = TrimmedTable(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1),
    )
    for heading in columns:
        right = heading.startswith(">")
        drawn.add_column(heading.removeprefix(">"), justify="right" if right else "left", overflow="fold")
    listed = list(rows)
    for number, row in enumerate(listed):
        drawn.add_row(*map(_breakable, row), end_section=bool(last) and number == len(listed) - 2)
    return drawn


def line(console: Console, *parts: str | Text, style: str = "") -> None:
    """Print a line of prose; in a pipe it is left whole."""
    # rich would wrap at 80 columns where nobody looks, and programs search for whole messages
    console.print(Text.assemble(*map(_breakable, parts)), style=style or None, soft_wrap=not console.is_terminal)


def say(*parts: str | Text, style: str = "") -> None:
    """Print a line of the result; without parts, a blank line."""
    line(output(), *parts, style=style)


def note(*parts: str | Text) -> None:
    """Print a line on standard error, which leaves the result as programs read it."""
    line(errors(), *parts)


def show(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, last: str = "") -> None:
    """Print a table of the result; see `table`."""
    output().print(table(columns, rows, last=last))


def _breakable(part: str | Text) -> str | Text:
    """Return text for a terminal, which shows a no-break space as another character."""
    return part.replace("\xa0", " ") if isinstance(part, str) else part


percent, seconds, size = formats.percent, formats.seconds, formats.size
plural, count = formats.counted, formats.count


def emit(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON object, or a list of them, on standard output."""
    typer.echo(to_json(value))


def to_json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return values as JSON; numbers that JSON does not have become null.

    >>> to_json({"accuracy": float("nan"), "run": Path("runs/demo")})
    '{"accuracy": null, "run": "runs/demo"}'
    """
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """Convert dataclasses, paths and infinite numbers to values that JSON has."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
