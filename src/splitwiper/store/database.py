"""An SQLite database per store, with a lease, a fence around every transaction made under it, and a seal.

The lease keeps two processes from working on one store; the fencing token keeps a process that lost its lease
(suspended, clock jumped) from committing anything. Deleted content is overwritten (``secure_delete``). The seal, if
the owner has a key, reveals edits made by anything but this program. A database on a read-only disk is opened for
reading.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from splitwiper.errors import (
    BusyError,
    CorruptError,
    FencedError,
    FormatError,
    InputError,
    NotFoundError,
    SealError,
    SplitWiperError,
    StoreError,
)
from splitwiper.exclusive import own
from splitwiper.reading import check_regular
from splitwiper.store.files import disk_full, make_folder, step, write_bytes
from splitwiper.store.lease import Hold, Lease
from splitwiper.store.process import Process
from splitwiper.store.sealing import Seal, sealed_schema

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
_FUNCTION = "user-defined function raised exception"
"""SQLite's whole report of an exception in one of our functions."""
_FAULTS = (sqlite3.DatabaseError, UnicodeError, OverflowError)
"""What Python's interface to SQLite raises, also for values that no database can hold."""


def _explained(path: Path, problem: Exception) -> SplitWiperError:
    """Return the error for a failure of a database, with a remedy."""
    if isinstance(problem, UnicodeEncodeError | OverflowError):
        return InputError(f"no database can hold this value ({problem}): give another name or number.")
    if "full" in str(problem):
        return disk_full(path)
    if "locked" in str(problem):
        return BusyError(f"{path} is locked by another process; try again.")
    if isinstance(problem, sqlite3.OperationalError):
        return StoreError(
            f"{path} cannot be read or written ({problem}): check the disk (free space, quotas, permissions), and run "
            "the same command again. Nothing acknowledged was lost."
        )
    return CorruptError(f"{path} cannot be read as a database ({problem}): restore it from a backup.")


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    """Turn failures of a database into errors that say what to do."""
    try:
        yield
    except _FAULTS as problem:
        raise _explained(path, problem) from problem


def _schema_of(db: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Return the tables, indices and triggers of a database: the kind, name, table and statement of each."""
    rows = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name")
    return list(map(tuple, rows.fetchall()))


@cache
def _expected(schema: str) -> list[tuple[str, ...]]:
    """Return the tables, indices and triggers of a database created with a schema."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(schema)
        return _schema_of(db)


def _missing_indices(present: Sequence[tuple[str, ...]], expected: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the statements for indices that a database lacks because it was created before they were introduced.

    Indices hold nothing that the tables do not, so a database without them is correct, only slower.
    """
    lacking = (entry for entry in expected if entry not in present)
    return [sql for kind, _, _, sql in lacking if kind == "index" and sql]


class Database:
    """An SQLite database with a lease, a fence, and a seal if there is a key.

    Args:
        path: the file.
        schema: its tables.
        key: returns the key that seals it, or None if that was destroyed. Without this function nothing is sealed.
    """

    def __init__(self, path: Path, schema: str, key: Callable[[], bytes | None] | None = None) -> None:
        self._db: sqlite3.Connection | None = None
        self._alone = threading.RLock()  # threads share the connection, and with it a transaction
        self.path = path
        self._seal = Seal(key) if key else None
        self._schema = sealed_schema(f"{_LEASE} {schema}") if key else f"{_LEASE} {schema}"
        self._holds: dict[int, weakref.ref[Hold]] = {}
        """The lease of each thread that has one. If it is lost, another thread may hold the next one meanwhile."""
        self._inode: tuple[int, int] | None = None

    def create(self, meta: Mapping[str, str]) -> None:
        """Create the database if it is missing: whole or not at all, and never over another process's."""
        if self.path.exists():
            return
        make_folder(self.path.parent)
        with closing(sqlite3.connect(":memory:")) as db:
            if self._seal:
                self._seal.begin()
                self._seal.attach(db)
            db.executescript(f"{self._schema} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};")
            db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            if self._seal:
                self._seal.write(db)
            db.commit()
            write_bytes(self.path, db.serialize(), replace=False)

    @property
    def db(self) -> sqlite3.Connection:
        """The open connection; the format is checked on first use."""
        if self._db is None:
            if not self.path.exists():
                raise NotFoundError(f"there is no {self.path}: this is not a SplitWiper folder.")
            self._check_files()
            db = self._connect(self.path, readonly=not self.is_writable())
            if self._seal:
                self._seal.attach(db)
            version = int(db.execute("PRAGMA user_version").fetchone()[0])
            if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION or version < 1:
                raise FormatError(f"{self.path} is not a SplitWiper database, or its making was interrupted.")
            if version != VERSION:
                age, remedy = ("a newer", "upgrade") if version > VERSION else ("an older", "use the older")
                raise FormatError(
                    f"{self.path} was written by {age} SplitWiper (format {version}, this program knows "
                    f"{VERSION}): {remedy} SplitWiper to open it; nothing was changed."
                )
            if self.is_writable():
                self._add_indices(db)
            self._db = db
        return self._db

    def _add_indices(self, db: sqlite3.Connection) -> None:
        """Add the indices that a database from an earlier version lacks.

        If that fails, for lack of room or because another process is changing the database, the next process to open it
        tries again.
        """
        with suppress(sqlite3.OperationalError):
            for sql in _missing_indices(_schema_of(db), _expected(self._schema)):
                db.execute(sql.replace("CREATE INDEX", "CREATE INDEX IF NOT EXISTS", 1))

    def _check_files(self) -> None:
        """Refuse files that SQLite would wait for or stumble over, and record which file is about to be opened."""
        for suffix in ("-journal", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                check_regular(self.path.with_name(f"{self.path.name}{suffix}"))
        self._inode = self._inode_now()

    def _inode_now(self) -> tuple[int, int] | None:
        try:
            status = check_regular(self.path)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def is_writable(self) -> bool:
        """Return whether this process may change the database: its file, and the journal next to it."""
        return os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)

    @staticmethod
    def _connect(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
        pragmas = ["foreign_keys = ON"]
        if not readonly:
            pragmas += ["secure_delete = ON", "synchronous = EXTRA", "journal_mode = DELETE"]
        with _explaining(path):
            address = f"{path.absolute().as_uri()}?mode={'ro' if readonly else 'rw'}"
            db = sqlite3.connect(address, timeout=30, isolation_level=None, check_same_thread=False, uri=True)
            db.row_factory = sqlite3.Row
            for pragma in pragmas:
                db.execute(f"PRAGMA {pragma}")
            db.execute("PRAGMA user_version").fetchone()
            if not readonly and path.with_name(f"{path.name}-journal").exists():
                # left by a process that died, whose changes are rolled back by now; a journal in use is left alone
                for mode in ("PERSIST", "DELETE"):
                    db.execute(f"PRAGMA journal_mode = {mode}")
        return db

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        with self._alone:
            if self._db is not None:
                self._db.close()
                self._db = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection, while other threads wait: they could be in the middle of a change."""
        with self._alone:
            yield self.db

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Return all rows of a query."""
        with _explaining(self.path), self.reading() as db:
            return db.execute(sql, values).fetchall()

    def one(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Row | None:
        """Return the first row of a query, or None."""
        rows = self.read(sql, values)
        return rows[0] if rows else None

    def meta(self, key: str) -> str | None:
        """Return a stored value, or None."""
        row = self.one("SELECT value FROM meta WHERE key = ?", (key,))
        return None if row is None else str(row[0])

    def number(self, key: str) -> int:
        """Return a stored number; 0 if there is none."""
        text = self.meta(key) or "0"
        if not re.fullmatch(r"-?[0-9]{1,100}", text):
            raise CorruptError(f"{self.path} has {text[:40]!r} for {key}, which is not a number: restore a backup.")
        return int(text)

    def change_stamp(self) -> bytes | None:
        """Return a value that differs after every change of a sealed database.

        None if there is no seal, or within a change. If the connection was closed, it is closed again.
        """
        with self._alone:
            if self._db is not None and self._db.in_transaction:
                return None
            was_open = self._db is not None
            try:
                self._follow()
                row = self.one("SELECT nonce FROM seal") if self._seal else None
                return row[0] if row is not None and isinstance(row[0], bytes) else None
            finally:
                if not was_open:
                    self.close()

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """Make one atomic change. Under a lease it commits only while the lease is still ours. Other threads wait.

        Raises:
            FencedError: another process took the lease over.
            DiskFullError: the disk is full; nothing changed.
        """
        with self._alone, self._explaining_unsealed():
            if self._seal:
                self._seal.begin()  # first: what it kept of an earlier failure would be taken for this change's
            db = self.db
            try:
                db.execute("BEGIN IMMEDIATE")  # inside the try: a signal handler's exception must not leave it open
                # The fence is read inside the transaction, which locks the database: from here to the commit nobody can
                # take the lease over, so a process that passes here may commit.
                self._fence()
                yield db
                if self._seal:
                    self._seal.write(db)
                with step("commit", self.path):
                    db.execute("COMMIT")
            finally:
                if db.in_transaction:  # an error, or an interrupt before the commit was reached
                    db.execute("ROLLBACK")

    @contextmanager
    def _explaining_unsealed(self) -> Iterator[None]:
        """Turn failures of a change into errors that say what to do, also those of the seal."""
        try:
            yield
        except sqlite3.IntegrityError:  # for example from the ledger's triggers: a bug of ours, not a fault of the disk
            raise
        except _FAULTS as problem:
            # SQLite reports of our own function only that it failed; the seal has kept why
            unsealed = self._seal.problem if self._seal else None
            if unsealed is None and _FUNCTION in str(problem):  # an interrupt, at the very moment of the call
                unsealed = KeyboardInterrupt()
            raise unsealed or _explained(self.path, problem) from problem

    @contextmanager
    def lease(self, purpose: str) -> Iterator[None]:
        """Hold the store for a piece of work; another process or thread does not wait but gets `BusyError`.

        A lease whose process is dead, or that expired, is taken over. Leases nest within one thread. On a read-only
        store there is nothing to protect, and no lease is taken.
        """
        thread = threading.get_ident()
        if self._held_by(thread) is not None or not self.is_writable():
            yield
            return
        with self.change() as db:  # read and taken in one transaction, so that two processes cannot both find it free
            last = self._lease(db)
            if self._stands(last):
                raise BusyError(
                    f"{self.path.parent} is in use by {last.holder} ({last.purpose}). "
                    "Wait for it to finish, or end it, and run this again."
                )
            hold = Hold(self.path.resolve(), token := last.token + 1)
            db.execute(
                "UPDATE lease SET token = ?, holder = ?, purpose = ?, since = ?, expires = ?",
                (token, Process.current().text, purpose, time.monotonic(), time.time() + LEASE_SECONDS),
            )
        self._holds[thread] = weakref.ref(hold)
        beat = own(threading.Thread(target=self._renew, args=(token, hold.stop), daemon=True, name=f"lease-{token}"))
        try:
            beat.start()
            yield
        except OSError:
            self.check_lease()  # if the successor erased the file, report the lost lease instead
            raise
        finally:
            hold.stop.set()
            self._holds.pop(thread, None)
            if beat.ident is not None:
                beat.join()
            with suppress(StoreError), self.change() as db:  # a full disk must not hide the original error
                db.execute("UPDATE lease SET holder = NULL WHERE token = ?", (token,))

    def _held_by(self, thread: int) -> int | None:
        """Return the token of the lease that a thread's work holds, even if another has taken its place."""
        reference = self._holds.get(thread)  # `get`, since the other thread may end its lease at any moment
        hold = reference() if reference else None
        return None if hold is None or hold.is_over else hold.token

    @property
    def _token(self) -> int | None:
        """The token of this thread's lease; a thread without one helps another that has one."""
        for thread in (threading.get_ident(), *list(self._holds)):
            if (token := self._held_by(thread)) is not None:
                return token
        return None

    def _stands(self, lease: Lease) -> bool:
        """Return whether a process is at work under a lease."""
        return lease.is_held(LEASE_SECONDS) and not lease.is_abandoned(self.path.resolve())

    def check_lease(self) -> None:
        """Raise `FencedError` if another process took the lease over."""
        with _explaining(self.path), self._alone:
            self._fence()

    def _fence(self) -> None:
        if (ours := self._token) is not None:
            held = self._lease(self.db).token
            if held != ours:
                raise FencedError(
                    f"another process took over {self.path.parent} (lease {held}, ours was {ours}); "
                    "this one stops and has changed nothing since."
                )

    def _lease(self, db: sqlite3.Connection) -> Lease:
        """Read the lease, and refuse one that this program did not write."""
        try:
            return Lease.read(db)
        except CorruptError as problem:
            raise CorruptError(f"{self.path}: {problem}. It was altered: restore it from a backup.") from problem

    def _renew(self, token: int, stop: threading.Event) -> None:
        """Renew the lease from a second connection until ``stop`` is set, or until the lease is lost."""
        while not stop.wait(LEASE_SECONDS / 3):
            # A connection of its own: this thread must not take part in a transaction of the thread that works. If the
            # database is locked or the disk is full, the next beat tries again; the fence protects the store meanwhile.
            with suppress(sqlite3.DatabaseError, SplitWiperError), closing(self._connect(self.path)) as db:
                now = (time.monotonic(), time.time() + LEASE_SECONDS)
                db.execute("UPDATE lease SET since = ?, expires = ? WHERE token = ?", (*now, token))

    def check(self) -> None:
        """Check the whole database: its pages, its schema, and the seal over every row.

        Raises:
            CorruptError: something other than this program changed it.
            SealError: the key of the seal is missing, so changes cannot be detected.
        """
        altered = CorruptError(
            f"{self.path} was changed by something other than SplitWiper, or is damaged: restore the folder from a "
            "backup."
        )
        try:
            with self._alone:
                self._follow()
                db = self.db
                sound = db.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
                Lease.read(db)
                holds = sound and self._has_schema(db) and self._sealed(db)
        except (sqlite3.DatabaseError, CorruptError, UnicodeDecodeError) as problem:
            raise altered from problem
        if holds is None:
            raise SealError(f"the key that seals {self.path} was destroyed, so edits of it cannot be noticed.")
        if not holds:
            raise altered

    def _has_schema(self, db: sqlite3.Connection) -> bool:
        """Return whether tables, triggers and indices are those that this program creates; indices may be missing."""
        present, expected = _schema_of(db), _expected(self._schema)
        lacking = _missing_indices(present, expected)
        return present == [entry for entry in expected if entry[-1] is None or entry[-1] not in lacking]

    def _follow(self) -> None:
        """Close the connection if another file now has the database's name, so that the next use opens that file."""
        if self._db is not None and not self._db.in_transaction and self._inode_now() != self._inode:
            self.close()

    def _sealed(self, db: sqlite3.Connection) -> bool | None:
        """Return whether the seal holds, read in one snapshot; true if there is no seal."""
        if self._seal is None:
            return True
        if db.in_transaction:
            return self._seal.holds(db)
        db.execute("BEGIN")
        try:
            return self._seal.holds(db)
        finally:
            db.execute("ROLLBACK")

    def is_held(self) -> bool:
        """Return whether a process works on this store right now."""
        return self._stands(self._readable_lease())

    def holder(self) -> str | None:
        """Describe the process that works on this store right now, or was interrupted; None if there is none."""
        lease = self._readable_lease()
        if lease.holder is None:
            return None
        if self._stands(lease):
            return f"{lease.purpose}, by {lease.holder}"
        return f"{lease.purpose} was interrupted ({lease.holder} is gone)"

    def _readable_lease(self) -> Lease:
        with _explaining(self.path), self.reading() as db:
            return self._lease(db)
