"""A blob store in one SQLite file elsewhere, with copies on this machine for what is read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from splitwiper.store import files


class OneFile:
    """Keeps every file as a row of a table, under its owner."""

    def __init__(self, root: Path, owner: str, file: str) -> None:
        self._copies, self._owner, self._file = root / "copies", owner, Path(file)

    @contextmanager
    def _table(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._file)) as database, database:
            database.execute("PRAGMA secure_delete = ON")
            database.execute("CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, content BLOB)")
            yield database

    def put(self, folder: str, name: str, file: Path) -> None:
        with self._table() as database:
            database.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (self._key(folder, name), file.read_bytes()))

    def path(self, folder: str, name: str) -> Path:
        with self._table() as database:
            row = database.execute("SELECT content FROM kept WHERE key = ?", (self._key(folder, name),)).fetchone()
        if row is None:
            raise FileNotFoundError(f"{self._file} holds no {folder}/{name}")
        copy = self._copies / folder / name
        if not copy.exists():
            files.write_bytes(copy, row[0])
        return copy

    def erase(self, folder: str, name: str) -> None:
        files.erase(self._copies / folder / name)
        with self._table() as database:
            database.execute("DELETE FROM kept WHERE key = ?", (self._key(folder, name),))

    def sizes(self, folder: str) -> Mapping[str, int]:
        prefix = self._key(folder, "")
        with self._table() as database:
            rows = database.execute(
                "SELECT substr(key, ?), length(content) FROM kept WHERE substr(key, 1, ?) = ?",
                (len(prefix) + 1, len(prefix), prefix),
            ).fetchall()
        return {**files.sizes(self._copies / folder), **dict(rows)}

    def _key(self, folder: str, name: str) -> str:
        return f"{self._owner}/{folder}/{name}"
