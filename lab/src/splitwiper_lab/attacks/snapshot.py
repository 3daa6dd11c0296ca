"""Keep what the server holds now, so that what it erases later can still be attacked.

A faithful server erases superseded shards; a curious one may not. To simulate a curious server, take a snapshot before
each change. The files are hard links where the file system allows it.
"""

from __future__ import annotations

import json
from pathlib import Path

from splitwiper.errors import FormatError, InputError, NotFoundError
from splitwiper.store import ServerStore, files

FORMAT = "splitwiper-snapshot"
_LIST = "snapshot.json"


def snapshot(run: Path, to: Path) -> int:
    """Keep the shards that a run's server holds now in a new folder, and return their number.

    Notes:
        Data in a snapshot is not forgotten when the run forgets it: use snapshots only for experiments.

    Raises:
        InputError: the folder exists.
        NotFoundError: the folder ``run`` does not hold a run.
    """
    if to.exists():
        raise InputError(f"{to} exists already; give a new folder for the snapshot.")
    if not (run / "server" / "server.db").exists():
        raise NotFoundError(f"there is no run in {run}: give the folder of one.")
    store = ServerStore(run / "server")
    try:
        records, columns = store.shards(), store.columns()
        files.make_folder(to)
        for record in records:
            files.adopt(store.root / "shards" / record.file, to / record.file)
    finally:
        store.database.close()
    known = {
        "format": FORMAT,
        "columns": [[column.name, column.dtype, list(column.shape)] for column in columns],
        "shards": [[record.client, record.generation, record.file] for record in records],
    }
    files.write_bytes(to / _LIST, json.dumps(known, indent=1).encode())  # last: it makes the snapshot valid
    return len(records)


def kept_in(folder: Path) -> dict[tuple[str, int], Path]:
    """Return the shards in a snapshot, by client and generation.

    Raises:
        NotFoundError: the folder is not a snapshot.
        FormatError: its list cannot be read.
    """
    if not (folder / _LIST).exists():
        raise NotFoundError(f"{folder} is not a snapshot (it has no {_LIST}): make one with snapshot(run, to).")
    try:
        known = json.loads((folder / _LIST).read_text(encoding="utf-8"))
        if known["format"] != FORMAT:
            raise ValueError(f"its format is {known['format']!r}")
        return {(str(client), int(generation)): folder / file for client, generation, file in known["shards"]}
    except (ValueError, TypeError, KeyError) as problem:
        raise FormatError(f"{folder / _LIST} is malformed ({problem}): take the snapshot again.") from problem
