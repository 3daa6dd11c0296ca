"""Seals: a keyed checksum over everything in a database, so that edits made without the key are detected.

Every row contributes its HMAC, and the seal is their sum modulo 2²⁵⁶ (a multiset hash, "MSet-Add-Hash" of Clarke et
al., 2003): adding or deleting a row costs one HMAC, however large the table is. Triggers report every change to the
program, which updates the sum in the same transaction. The stored sum is masked with a fresh nonce each time, so that
two copies of a database do not reveal the HMAC of the row in which they differ.

A seal shows that nobody without the key edited the database. It cannot show that the whole database is not an older
copy: that takes a ledger head or a receipt kept outside.
"""

from __future__ import annotations

import hmac
import secrets
import sqlite3
import struct
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import cache
from typing import Any

from splitwiper.errors import CorruptError
from splitwiper.seeding import encode, mac

_MODULUS = 1 << 256
_UNSEALED = ("lease", "seal")
"""Not sealed: the lease changes hands without the key, and the seal cannot cover itself."""
_TABLE = "CREATE TABLE seal (one INTEGER PRIMARY KEY CHECK (one = 1), nonce BLOB NOT NULL, total BLOB NOT NULL);"


@cache
def sealed_schema(schema: str) -> str:
    """Return a schema with the table that stores the seal, and triggers that report every change of a row."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(schema)
        parts = [schema, _TABLE]
        for table in _tables(db):
            parts.append(_triggers(db, table))
    return "".join(parts)


def _tables(db: sqlite3.Connection) -> list[str]:
    rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")
    return [name for (name,) in rows.fetchall() if name not in _UNSEALED]


def _triggers(db: sqlite3.Connection, table: str) -> str:
    count, discount = f"SELECT seal_row(1, '{table}'", f"SELECT seal_row(-1, '{table}'"
    for _, column, *_ in db.execute(f"PRAGMA table_info({table})"):
        count += f", NEW.{column}"
        discount += f", OLD.{column}"
    count, discount = f"{count});", f"{discount});"
    triggers = ""
    for event, body in (("INSERT", count), ("DELETE", discount), ("UPDATE", discount + count)):
        name = f"seal_{table}_{event.lower()}"
        triggers += f"CREATE TRIGGER {name} AFTER {event} ON {table} BEGIN {body} END;\n"
    return triggers


class Seal:
    """Keeps a database's seal up to date, and checks it."""

    def __init__(self, key: Callable[[], bytes | None]) -> None:
        self._read_key = key
        self._key: bytes | None = None
        self._delta = 0
        self.problem: BaseException | None = None
        """Why a change could not be sealed: SQLite itself only reports that a function failed."""

    def attach(self, db: sqlite3.Connection) -> None:
        """Connect the triggers of a connection to this object."""
        db.execute("PRAGMA recursive_triggers = ON")  # rows that INSERT OR REPLACE removes are reported, too
        db.create_function("seal_row", -1, self._report)

    def begin(self) -> None:
        """Discard the reports of a transaction that did not commit."""
        self._delta, self._key, self.problem = 0, None, None

    def _report(self, sign: int, table: str, *values: Any) -> None:
        try:
            if self._key is None:
                self._key = self._required()
            self._delta += sign * _weight(self._key, table, values)
        except BaseException as problem:  # an interrupt may come at any moment
            self.problem = problem
            raise

    def _required(self) -> bytes:
        key = self._read_key()
        if key is None:
            raise CorruptError("the key that seals this database is gone: restore it from a backup.")
        return key

    def write(self, db: sqlite3.Connection) -> None:
        """Bring the stored seal up to date, inside the transaction that changed rows."""
        if not self._delta:  # nothing changed, or everything was changed back: the sum of the rows is what it was
            return
        key = self._key or self._required()
        row = db.execute("SELECT nonce, total FROM seal").fetchone()
        total = (_unmasked(key, *row) if row else 0) + self._delta
        # a fresh mask each time: the difference of two stored sums would be the HMACs of the rows that changed
        nonce = secrets.token_bytes(32)
        masked = (total + _mask(key, nonce)) % _MODULUS
        db.execute("INSERT OR REPLACE INTO seal VALUES (1, ?, ?)", (nonce, masked.to_bytes(32, "big")))
        self._delta = 0

    def holds(self, db: sqlite3.Connection) -> bool | None:
        """Return whether the database is as the holder of the key left it; None if the key is missing."""
        key = self._read_key()
        if key is None:
            return None
        row = db.execute("SELECT nonce, total FROM seal").fetchone()
        if row is None or set(map(type, row)) != {bytes}:
            return False
        # Addition is commutative, so the order in which rows are read does not matter; and a forger who cannot compute
        # HMACs finds no other set of rows with the same sum (this is the multiset hash's security).
        total = 0
        for table in _tables(db):
            for values in db.execute(f"SELECT * FROM {table}"):  # noqa: S608
                total += _weight(key, table, tuple(values))
        return total % _MODULUS == _unmasked(key, *row)


def _weight(key: bytes, table: str, values: Iterable[Any]) -> int:
    """Return a row's HMAC as a number."""
    parts = encode([table]) + b"".join(map(_encoded, values))
    return int.from_bytes(hmac.digest(key, b"seal row" + parts, "sha256"), "big")


def _encoded(value: Any) -> bytes:
    if value is None:
        return b"n"
    return b"f" + struct.pack(">d", value) if isinstance(value, float) else encode([value])


def _mask(key: bytes, nonce: bytes) -> int:
    return int.from_bytes(mac(key, "seal mask", nonce), "big")


def _unmasked(key: bytes, nonce: bytes, total: bytes) -> int:
    return (int.from_bytes(total, "big") - _mask(key, nonce)) % _MODULUS
