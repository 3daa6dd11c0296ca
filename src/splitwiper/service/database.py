"""The service's own database, which several threads share."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from splitwiper.service import attestations, client_keys, negotiations, overrides, requests, uploads
from splitwiper.store.database import Database


class SharedDatabase(Database):
    """A database whose reads and changes are serialised across threads: a connection has only one transaction."""

    def __init__(self, path: Path, schema: str) -> None:
        super().__init__(path, schema)
        self._turn = threading.RLock()

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Return all rows of a query."""
        with self._turn:
            return super().read(sql, values)

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction."""
        with self._turn, super().change() as db:
            yield db


def service_database(root: Path) -> SharedDatabase:
    """Open the service's database: uploads, received requests, negotiations, operators' decisions and attestations."""
    parts = (uploads, overrides, requests, client_keys, negotiations, attestations)
    return SharedDatabase(root / "service.db", "".join(part.SCHEMA for part in parts))
