"""The service's own book, which several desks use at once."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from splitwiper.service import attestations, cases, overrides, talks, uploads
from splitwiper.store.book import Book


class SharedBook(Book):
    """A book that one thread at a time reads or changes: a connection has one transaction."""

    def __init__(self, path: Path, schema: str) -> None:
        super().__init__(path, schema)
        self._turn = threading.RLock()

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """All rows of a query."""
        with self._turn:
            return super().read(sql, values)

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """One atomic change."""
        with self._turn, super().change() as db:
            yield db


def service_book(root: Path) -> SharedBook:
    """The book of the service over a store: uploads, requests as they came, talks, what was decided and attested."""
    parts = (uploads, overrides, cases, talks, attestations)
    return SharedBook(root / "service.db", "".join(part.SCHEMA for part in parts))
