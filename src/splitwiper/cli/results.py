"""Files of results: JSON lines, each with the conditions it was measured under, so that work can be gone on with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splitwiper.cli import show
from splitwiper.errors import ConfigError


def read_lines(path: Path, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was measured under the same conditions. A last line that was cut short is as if it were not there.

    Raises:
        ConfigError: the file holds something else.
    """
    same = json.loads(show.to_json(about))
    try:
        lines = path.read_bytes().decode().split("\n") if path.exists() else [""]
        if not _is_whole(lines[-1]):
            lines.pop()
        return [record for record in (json.loads(line) for line in lines if line) if record["about"] == same]
    except (ValueError, KeyError, TypeError) as problem:
        raise ConfigError(f"{path} is not a list of results ({problem}); give another folder.") from problem


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Add a result on a line of its own; what is left of one that was cut short is taken away."""
    there = path.read_bytes() if path.exists() else b""
    last = there[there.rfind(b"\n") + 1 :]
    with path.open("ab") as file:
        if last and _is_whole(last):
            file.write(b"\n")
        elif last:
            file.truncate(len(there) - len(last))
        file.write(show.to_json(record).encode() + b"\n")


def _is_whole(line: str | bytes) -> bool:
    try:
        return not line or bool(json.loads(line))
    except ValueError:
        return False


def machine(device: str) -> dict[str, Any]:
    """What and when: the numerics of this machine, the version, the date."""
    from splitwiper import __version__
    from splitwiper.numerics import fingerprint, pick_device
    from splitwiper.store.tickets import now

    return {"fingerprint": fingerprint(pick_device(device), 0), "version": __version__, "date": now()}


def machines(records: list[dict[str, Any]]) -> list[str]:
    """The machines that results come from, in words."""
    found = (record["fingerprint"] for record in records)
    return sorted({f"{print_.get('device', 'cpu')}, torch {print_['torch']}" for print_ in found})
