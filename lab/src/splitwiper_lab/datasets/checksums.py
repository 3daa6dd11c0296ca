"""Sizes and SHA-256 of fetched files, kept in ``checksums.json`` in the same folder."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

from splitwiper.errors import DataError
from splitwiper_lab.datasets.published import Published

NAME = "checksums.json"


def write(what: Published, place: Path) -> None:
    """Record sizes and hashes of the files in ``place``."""
    files = {}
    for path in _present(what, place):
        files[path.name] = {"size": path.stat().st_size, "sha256": _sha256(path)}
    text = json.dumps({"format": 1, "set": what.name, "files": files}, indent=2)
    (place / NAME).write_text(text + "\n", encoding="utf-8")


def check_sizes(what: Published, root: Path) -> None:
    """Compare the sizes of files with the recorded ones; without a record, do nothing.

    Raises:
        DataError: a file has another size.
    """
    place = what.place(root)
    recorded = _recorded(what, place)
    for path in _present(what, place):
        if path.name in recorded:
            size, was = path.stat().st_size, recorded[path.name]["size"]
            if size != was:
                what.damaged(path, f"{size:,} bytes instead of the {was:,} that were fetched")


def check(what: Published, root: Path) -> dict[str, str]:
    """Compare the hashes of all files with those recorded or published.

    Returns:
        The status of each file: ``fetched``, ``published``, ``not the published file`` (which may be a part of it, or
        recompressed), or ``unknown`` if no checksum is known.

    Raises:
        DataError: a file has another size than was fetched, or another hash than was fetched or published.
    """
    check_sizes(what, root)
    place = what.place(root)
    recorded = _recorded(what, place)
    outcome = {}
    for path in _present(what, place):
        known = recorded.get(path.name)
        if known is not None and _sha256(path) != known["sha256"]:
            what.damaged(path, "its SHA-256 is not that of the file that was fetched")
        outcome[path.name] = _as_published(what, path) if known is None else "fetched"
    return outcome


def _as_published(what: Published, path: Path) -> str:
    for offer in (*what.downloads, *what.unpacked):
        if offer.file != path.name:
            continue
        if offer.size == path.stat().st_size:
            if _sha256(path) == offer.sha256:
                return "published"
            if path.suffix != ".gz":  # it may be recompressed, and gzip has its own checksum
                what.damaged(path, "its SHA-256 is not the published one")
        return "not the published file"
    return "unknown"


def _present(what: Published, place: Path) -> list[Path]:
    """Return the paths of the set's files in a folder, without those that are missing."""
    return list(filter(None, map(partial(what.path, place), what.files)))


def _recorded(what: Published, place: Path) -> dict[str, dict[str, Any]]:
    """Return the recorded size and hash of each file; empty if there is no record of this set."""
    file = place / NAME
    if not file.is_file():
        return {}
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        recorded = {}
        if record["set"] == what.name:  # else it is of another set in the same folder
            for name, known in record["files"].items():
                recorded[str(name)] = {"size": int(known["size"]), "sha256": str(known["sha256"])}
        return recorded
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
        raise DataError(f"{file} is not a record of checksums; delete it to go without it.") from problem


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
