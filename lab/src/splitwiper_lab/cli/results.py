"""Result files: JSON lines, each with its measurement conditions, so that an interrupted run can be resumed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from splitwiper.cli import output
from splitwiper.errors import ConfigError
from splitwiper_lab.evaluation import lines


def read_lines(path: Path, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the results measured under the same conditions. A truncated last line is ignored.

    Raises:
        ConfigError: the file holds something else.
    """
    same = json.loads(output.to_json(about))
    try:
        found = path.read_bytes().decode().split("\n") if path.exists() else [""]
        if not lines.is_whole(found[-1]):
            found.pop()
        return [record for record in (json.loads(line) for line in found if line) if record["about"] == same]
    except (ValueError, KeyError, TypeError) as problem:
        raise ConfigError(f"{path} is not a list of results ({problem}); give another folder.") from problem


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Append a result as one line, after removing a truncated last line."""
    lines.append_line(path, output.to_json(record))


def machine(device: str) -> dict[str, Any]:
    """Return the numerics of this machine, the version and the date."""
    from splitwiper import __version__
    from splitwiper.numerics import fingerprint, pick_device
    from splitwiper.store.tickets import now

    return {"fingerprint": fingerprint(pick_device(device), 0), "version": __version__, "date": now()}


def machines(records: list[dict[str, Any]]) -> list[str]:
    """Describe the machines that results come from."""
    found = (record["fingerprint"] for record in records)
    return sorted({f"{print_.get('device', 'cpu')}, torch {print_['torch']}" for print_ in found})


@contextmanager
def without_warnings_of_seeds() -> Iterator[None]:
    """Suppress the warning about seeded keys: experiments derive keys from the seed intentionally."""

    def about_others(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("client.keys = 'seeded'")

    log = logging.getLogger("splitwiper")
    log.addFilter(about_others)
    try:
        yield
    finally:
        log.removeFilter(about_others)
