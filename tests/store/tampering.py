"""Editing a sealed database as somebody can who holds the file and not the key."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path


@contextmanager
def tampered(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection on which anything can be changed: no trigger reports it, and afterwards all triggers are back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        yield db
        for _, sql in triggers:
            db.execute(sql)
