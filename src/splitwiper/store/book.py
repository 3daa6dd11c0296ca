"""A book: one SQLite database per tree, with a lease, and a fence around every transaction made under it.

The lease keeps two processes from working on one tree; the fencing token keeps a process that lost its lease
(suspended, clock jumped) from committing anything. Deleted content is overwritten (``secure_delete``).
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from splitwiper.errors import (
    BusyError,
    CorruptError,
    FencedError,
    FormatError,
    NotFoundError,
    SplitWiperError,
    StoreError,
)
from splitwiper.store.files import disk_full, make_folder, step, write_bytes
from splitwiper.store.process import Process

APPLICATION = 0x53705770  # marks our databases
VERSION = 5
LEASE_SECONDS = 30.0
_LEASE = """
-- since: the holder's last sign of life, by the machine's own clock that nobody sets; expires: by the clock on the wall
CREATE TABLE lease (
  one INTEGER PRIMARY KEY CHECK (one = 1), token INTEGER NOT NULL, holder TEXT, purpose TEXT,
  since REAL, expires REAL);
INSERT INTO lease (one, token) VALUES (1, 0);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


_unreleased: set[tuple[Path, int]] = set()
"""Leases this process could not give back, for want of room; it may take them up again."""


def _explained(path: Path, problem: sqlite3.DatabaseError) -> SplitWiperError:
    """What went wrong with a database, and what to do."""
    if "full" in str(problem):
        return disk_full(path)
    if "locked" in str(problem):
        return BusyError(f"{path} is locked by another process; try again.")
    if isinstance(problem, sqlite3.OperationalError):
        return StoreError(
            f"{path} cannot be read or written ({problem}): see to the disk, its room, its limits and permissions, and "
            "run the same command again. Nothing acknowledged was lost."
        )
    return CorruptError(f"{path} cannot be read as a database ({problem}): restore it from a backup.")


def _is_held(row: sqlite3.Row) -> bool:
    """Whether a lease still stands.

    On one machine that is told by a clock that nobody sets: a jump of the other takes no lease from who is at work.
    Between machines, one that ends later than any lease can was written before the clock jumped back.
    """
    who, silent, now = Process.parse(row["holder"]), time.monotonic() - row["since"], time.time()
    if who.is_here() and silent >= 0:
        return silent < LEASE_SECONDS and who.may_be_alive()
    stands = now < row["expires"] and (who.is_here() or row["expires"] <= now + 2 * LEASE_SECONDS)
    return stands and who.may_be_alive()


class Book:
    """An SQLite database with a lease and a fence."""

    def __init__(self, path: Path, schema: str) -> None:
        self.path = path
        self._schema = schema
        self._token: int | None = None
        self._db: sqlite3.Connection | None = None

    def create(self, meta: Mapping[str, str]) -> None:
        """Make the database if it is not there: whole or not at all, and never over another process's."""
        if self.path.exists():
            return
        make_folder(self.path.parent)
        with closing(sqlite3.connect(":memory:")) as db:
            db.executescript(
                f"{_LEASE} {self._schema} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
            )
            db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            db.commit()
            write_bytes(self.path, db.serialize(), replace=False)

    @property
    def db(self) -> sqlite3.Connection:
        """The open connection; the format is checked when it is first used."""
        if self._db is None:
            if not self.path.exists():
                raise NotFoundError(f"there is no {self.path}: this is not a SplitWiper folder.")
            db = self._connect(self.path)
            version = int(db.execute("PRAGMA user_version").fetchone()[0])
            if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION or version < 1:
                raise FormatError(f"{self.path} is not a SplitWiper database, or its making was interrupted.")
            if version != VERSION:
                age, remedy = ("a newer", "upgrade") if version > VERSION else ("an older", "take the older")
                raise FormatError(
                    f"{self.path} was written by {age} SplitWiper (format {version}, this program knows "
                    f"{VERSION}): {remedy} SplitWiper to open it; nothing was changed."
                )
            self._db = db
        return self._db

    @staticmethod
    def _connect(path: Path) -> sqlite3.Connection:
        try:
            db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            db.row_factory = sqlite3.Row
            for pragma in (
                "secure_delete = ON",
                "synchronous = EXTRA",
                "journal_mode = DELETE",
                "foreign_keys = ON",
            ):
                db.execute(f"PRAGMA {pragma}")
            db.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError as problem:
            raise _explained(path, problem) from problem
        return db

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """All rows of a query."""
        try:
            return self.db.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as problem:
            raise _explained(self.path, problem) from problem

    def one(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Row | None:
        """The first row of a query, or None."""
        rows = self.read(sql, values)
        return rows[0] if rows else None

    def meta(self, key: str) -> str | None:
        """A remembered value."""
        row = self.one("SELECT value FROM meta WHERE key = ?", (key,))
        return None if row is None else str(row[0])

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """One atomic change. Under a lease it only commits while the lease is still ours.

        Raises:
            FencedError: another process took the lease over.
            DiskFullError: there was no room; nothing changed.
        """
        db = self.db
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                self._fence()
                yield db
                with step("commit", self.path):
                    db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
        except sqlite3.IntegrityError:  # the ledger's triggers, for one: a mistake of ours, not of the disk
            raise
        except sqlite3.DatabaseError as problem:
            raise _explained(self.path, problem) from problem

    @contextmanager
    def lease(self, purpose: str) -> Iterator[None]:
        """Hold the tree for a piece of work; a second holder waits for no one and gets `BusyError`.

        A lease whose process is dead, or that ran out, is taken over. Leases nest within one process.
        """
        if self._token is not None:
            yield
            return
        me = Process.current()
        with self.change() as db:
            row = db.execute("SELECT * FROM lease").fetchone()
            ours = (self.path.resolve(), row["token"]) in _unreleased
            if row["holder"] and not ours and _is_held(row):
                raise BusyError(
                    f"{self.path.parent} is in use by {Process.parse(row['holder'])} ({row['purpose']}). "
                    "Wait for it to finish, or end it, and run this again."
                )
            token = int(row["token"]) + 1
            db.execute(
                "UPDATE lease SET token = ?, holder = ?, purpose = ?, since = ?, expires = ?",
                (token, me.text, purpose, time.monotonic(), time.time() + LEASE_SECONDS),
            )
        self._token = token
        stop = threading.Event()
        beat = threading.Thread(target=self._renew, args=(token, stop), daemon=True, name=f"lease-{token}")
        try:
            beat.start()
            yield
        except OSError:
            self._fence()  # a file is gone because the successor erased it: say so
            raise
        finally:
            stop.set()
            if beat.ident is not None:
                beat.join()
            self._token = None
            try:
                with self.change() as db:
                    db.execute("UPDATE lease SET holder = NULL WHERE token = ?", (token,))
            except StoreError:  # a full disk must not hide the error that brought us here
                _unreleased.add((self.path.resolve(), token))

    def check_lease(self) -> None:
        """Stop if the lease was lost.

        Raises:
            FencedError: another process took it over.
        """
        try:
            self._fence()
        except sqlite3.DatabaseError as problem:
            raise _explained(self.path, problem) from problem

    def _fence(self) -> None:
        """Stop if the lease was lost."""
        if self._token is not None:
            held = self.db.execute("SELECT token FROM lease").fetchone()[0]
            if held != self._token:
                raise FencedError(
                    f"another process took over {self.path.parent} (lease {held}, ours was {self._token}); "
                    "this one stops and has changed nothing since."
                )

    def _renew(self, token: int, stop: threading.Event) -> None:
        """Keep the lease alive from a second connection until told to stop, or until it is lost."""
        while not stop.wait(LEASE_SECONDS / 3):
            with suppress(sqlite3.DatabaseError, SplitWiperError), closing(self._connect(self.path)) as db:
                # locked or full just now: the next beat tries again, and the fence holds meanwhile
                now = (time.monotonic(), time.time() + LEASE_SECONDS)
                db.execute("UPDATE lease SET since = ?, expires = ? WHERE token = ?", (*now, token))

    def holder(self) -> str | None:
        """Who works on this tree right now, in words; None when nobody does."""
        row = self.one("SELECT * FROM lease")
        if row is None or not row["holder"]:
            return None
        who = Process.parse(row["holder"])
        if _is_held(row):
            return f"{row['purpose']}, by {who}"
        return f"{row['purpose']} was interrupted ({who} is gone)"
