"""Files of results: JSON lines, append-only with one object per line, which survive a process killed while writing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from splitwiper.errors import DataError
from splitwiper.store import files
from splitwiper_lab.sweeps.cells import Cell, CellResult, from_line

_START = b"{"
"""The beginning of every line, also of one that was cut short."""


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


def append_line(path: Path, values: Mapping[str, Any]) -> None:
    """Append an object, after removing a truncated last line. Concurrent processes are serialised.

    Raises:
        DataError: the file ends with something that never was a line.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(_finite(values), ensure_ascii=False, allow_nan=False)
    with path.open("ab") as file, files.locked(path):
        there = path.read_bytes()
        last = there[there.rfind(b"\n") + 1 :]
        if last and _is_whole(last):  # somebody's editor took the newline at the end away
            file.write(b"\n")
        elif last.startswith(_START):  # cut short by a kill: its cell is measured again
            file.truncate(len(there) - len(last))
        elif last:
            raise damaged(path, there.count(b"\n") + 1, ValueError("it is not JSON"))
        file.write(line.encode() + b"\n")


def read_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield every line's number and value. A truncated last line is ignored, and so is a file that is not there.

    Raises:
        DataError: a line is not JSON.
    """
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            value = json.loads(line)
        except ValueError as problem:
            if number == len(lines) and line.startswith(_START):  # no newline: whoever wrote it was killed
                return
            raise damaged(path, number, problem) from problem
        yield number, value


def damaged(path: Path, number: int, problem: Exception) -> DataError:
    """Return the error about a line that is not a result."""
    reason = str(problem) if isinstance(problem, ValueError | TypeError) else repr(problem)
    return DataError(
        f"{path}, line {number} is not a result ({reason}). Take that line away, and the cell is measured again; or "
        "name another file."
    )


def _is_whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _finite(value: Any) -> Any:
    """Replace numbers that JSON does not have by null, for example an accuracy over no rows."""
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def machine(device: str) -> dict[str, Any]:
    """Return the numerics of this machine, the version and the date."""
    from splitwiper import __version__
    from splitwiper.numerics import fingerprint, pick_device
    from splitwiper.store.tickets import now

    return {"fingerprint": fingerprint(pick_device(device), 0), "version": __version__, "date": now()}


def machines(results: Iterable[CellResult]) -> list[str]:
    """Describe the machines that results come from."""
    found = set()
    for result in results:
        seen = result.made["fingerprint"]
        found.add(f"{seen.get('device', 'cpu')}, torch {seen['torch']}")
    return sorted(found)
