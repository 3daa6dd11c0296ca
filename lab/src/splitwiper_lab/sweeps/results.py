"""Files of results: the one place that reads and appends them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from splitwiper_lab.sweeps.cells import Cell, CellResult, from_line
from splitwiper_lab.sweeps.lines import append_line, damaged, read_lines


def append(path: Path, result: CellResult) -> None:
    """Append a result to a file, after removing a truncated last line."""
    append_line(path, result.to_line())


def read_results(
    path: Path,
    *,
    wanted: Callable[[Cell], bool] = lambda cell: True,
    check: Callable[[CellResult], object] = lambda result: None,
) -> list[CellResult]:
    """Read results in the order of the file, each cell once: of several lines of a cell, the first counts.

    Args:
        path: the file; there need not be one.
        wanted: which cells to read.
        check: called with each; a `KeyError`, `TypeError` or the like says that it cannot be shown.

    Raises:
        DataError: a line is damaged, or a result cannot be shown; the message names the file and the line.
    """
    found: dict[Cell, CellResult] = {}
    for number, values in read_lines(path):
        try:
            result = from_line(values)
            if result.cell in found or not wanted(result.cell):
                continue
            check(result)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as problem:
            raise damaged(path, number, problem) from problem
        found[result.cell] = result
    return list(found.values())
