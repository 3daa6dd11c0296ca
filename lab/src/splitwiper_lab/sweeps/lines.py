"""JSON lines: append-only files with one object per line, which survive a process killed while writing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from splitwiper.errors import DataError

try:
    import fcntl
except ImportError:  # Windows: two processes must then not append to the same file at once
    fcntl = None  # type: ignore[assignment]

_START = b"{"
"""The beginning of every line, also of one that was cut short."""


def append_line(path: Path, values: Mapping[str, Any]) -> None:
    """Append an object, after removing a truncated last line. Concurrent processes are serialised.

    Raises:
        DataError: the file ends with something that never was a line.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(_finite(values), ensure_ascii=False, allow_nan=False)
    with path.open("ab") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        there = path.read_bytes()
        last = there[there.rfind(b"\n") + 1 :]
        if last and _is_whole(last):  # somebody's editor took the newline at the end away
            file.write(b"\n")
        elif last.startswith(_START):
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
    told = str(problem) if isinstance(problem, ValueError | TypeError) else repr(problem)
    return DataError(
        f"{path}, line {number} is not a result ({told}). Take that line away, and the cell is measured again; or name "
        "another file."
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
