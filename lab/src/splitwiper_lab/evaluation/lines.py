"""JSON lines: append-only files with one result per line, which survive a process killed while writing."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path


def append_line(path: Path, line: str) -> None:
    """Append a line, after removing a truncated last one. Concurrent processes are serialised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        there = path.read_bytes()
        last = there[there.rfind(b"\n") + 1 :]
        if last and is_whole(last):
            file.write(b"\n")
        elif last:
            file.truncate(len(there) - len(last))
        file.write(line.encode() + b"\n")


def is_whole(line: str | bytes) -> bool:
    """Return whether a line is complete JSON.

    >>> is_whole('{"a": 1}'), is_whole('{"a": ')
    (True, False)
    """
    try:
        return not line or bool(json.loads(line))
    except ValueError:
        return False
