"""Uploads in pieces: begun, resumed after an interruption, finished; streamed to disk and checksummed.

The service's database describes each upload (client, size, mark, statement). The length of its file says how much of it
has arrived, so the two cannot disagree, whenever the server dies. Digests are kept only in memory: after a restart they
are computed from the file. The time that each upload has left is kept in memory too, so that changing the clock ends no
upload in progress.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from splitwiper.errors import BusyError, DataError, DiskFullError, NotFoundError, QuotaError
from splitwiper.service.records.appending import append
from splitwiper.service.records.expiry import Expiry
from splitwiper.service.settings import ServiceConfig
from splitwiper.store import files
from splitwiper.store.database import Database
from splitwiper.store.pieces import Passing
from splitwiper.wire import Spent, Statement

SCHEMA = """
CREATE TABLE uploads (
  id TEXT PRIMARY KEY, client TEXT NOT NULL, size INTEGER NOT NULL, mark TEXT NOT NULL, statement TEXT NOT NULL,
  expires REAL NOT NULL, signed TEXT);
CREATE INDEX uploads_by_client ON uploads (client);
"""


@dataclass(frozen=True)
class Upload:
    """An upload that was begun."""

    id: str
    client: str
    size: int
    mark: str
    statement: Statement
    expires: float
    path: Path
    signed: str | None = None

    @property
    def offset(self) -> int:
        """How many of its bytes have arrived."""
        return self.path.stat().st_size if self.path.exists() else 0


@dataclass
class _Arrival:
    """What this process knows about the bytes of an upload."""

    passing: Passing = field(default_factory=Passing)
    travelled: int | None = None
    """Bytes on the wire; None if unknown, after an interruption."""


def drop(database: Database, folder: Path, client: str) -> None:
    """Cancel all uploads of a client, from another process than the one that receives them."""
    with database.change() as db:
        rows = db.execute("SELECT id FROM uploads WHERE client = ?", (client,)).fetchall()
        db.execute("DELETE FROM uploads WHERE client = ?", (client,))
    for row in rows:
        files.erase(folder / f"{row['id']}.part")


class Uploads:
    """Uploads that were begun and not finished: described in the service's database, with their files in a folder."""

    def __init__(
        self, folder: Path, database: Database, config: ServiceConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._database, self._config = folder, database, config
        self._terms = Expiry(config.patience, clock)
        self._arrivals: dict[str, _Arrival] = {}
        self._busy: set[str] = set()
        files.make_folder(folder)

    @contextmanager
    def alone(self, upload: str) -> Iterator[None]:
        """Keep other calls away from an upload while this one works on it; refuse this one if another does."""
        if upload in self._busy:
            raise BusyError("another call sends to this upload: wait for it, then ask how far the upload has come.")
        self._busy.add(upload)
        try:
            yield
        finally:
            self._busy.discard(upload)

    def is_taking_in(self, client: str) -> bool:
        """Return whether a call is sending to, or finishing, one of the client's uploads."""
        rows = self._database.read("SELECT id FROM uploads WHERE client = ?", (client,))
        return any(row["id"] in self._busy for row in rows)

    def begin(
        self, client: str, size: int, mark: str, statement: Statement, *, signed: str | None = None, spared: int = 0
    ) -> Upload:
        """Begin an upload, or return the one that was begun for the same file.

        Args:
            client: the client's name.
            size: the size of the whole file, in bytes.
            mark: the client's identifier for the file. If two files share a mark, the digest of what arrives is
                neither's, and nothing is accepted.
            statement: the client's statement about the shard.
            signed: the same, signed by the site, as JSON.
            spared: the size up to which it may use the disk's reserve.

        Raises:
            DataError: it is larger than allowed.
            QuotaError: the client has too many unfinished uploads.
            DiskFullError: there is no room for it.
        """
        if not 0 < size <= self._config.largest:
            raise DataError(f"a shard of {size:,} bytes is not accepted here: the limit is {self._config.largest:,}.")
        self.expire()  # what has expired must not count against the client
        text = json.dumps(asdict(statement), sort_keys=True)
        with self._database.change() as db:
            begun = db.execute("SELECT * FROM uploads WHERE client = ?", (client,)).fetchall()
            for row in begun:
                if (row["size"], row["mark"]) == (size, mark):
                    db.execute("UPDATE uploads SET statement = ?, signed = ? WHERE id = ?", (text, signed, row["id"]))
                    return replace(self._upload(row), statement=statement, signed=signed)
            if len(begun) >= self._config.unfinished:
                raise QuotaError(
                    f"{client!r} has begun {len(begun)} uploads and not finished them: finish or cancel one first."
                )
        name = secrets.token_hex(16)
        upload = Upload(name, client, size, mark, statement, self._terms.begin(name), self._path(name), signed)
        self.make_room(upload, spared)
        with self._database.change() as db:
            values = (name, client, size, mark, text, upload.expires, signed)
            db.execute("INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        return upload

    def find(self, client: str, upload: str) -> Upload:
        """Return an upload of a client; raise `NotFoundError` if it has no such upload."""
        row = self._database.one("SELECT * FROM uploads WHERE id = ? AND client = ?", (upload, client))
        if row is None:
            raise NotFoundError(
                f"there is no upload {upload!r}: it was finished, cancelled or has expired; begin again."
            )
        return self._upload(row)

    def still(self, upload: Upload) -> None:
        """Raise `NotFoundError` if an upload was cancelled while it was sent to, and erase what arrived."""
        try:
            self.find(upload.client, upload.id)
        except NotFoundError:
            self.end(upload)
            raise

    def _upload(self, row: sqlite3.Row) -> Upload:
        values = json.loads(row["statement"])
        statement = Statement(**{**values, "tickets": tuple(values["tickets"]), "spent": Spent(**values["spent"])})
        path = self._path(row["id"])
        return Upload(
            row["id"], row["client"], row["size"], row["mark"], statement, row["expires"], path, row["signed"]
        )

    def _path(self, upload: str) -> Path:
        return self._folder / f"{upload}.part"

    def _room(self, size: int, spared: int) -> int:
        """Return how many bytes an upload of this size may take: the free ones, less the disk's reserve."""
        free = os.statvfs(self._folder)
        reserve = int(self._config.reserve * free.f_blocks)
        if size <= spared:
            # one that may use the reserve leaves half of what is free: otherwise one client could take it all from the
            # others, however slowly it sends
            reserve = min(reserve, free.f_bavail // 2)
        return (free.f_bavail - reserve) * free.f_frsize

    def make_room(self, upload: Upload, spared: int) -> None:
        """Make sure that there is room for the rest of an upload.

        One that forgets rows has priority: uploads of other clients that nobody is sending to are cancelled for it, the
        largest first. They can be begun again.
        """
        left = upload.size - upload.offset
        if left <= self._room(upload.size, spared):
            return
        rows = self._database.read("SELECT * FROM uploads WHERE client != ?", (upload.client,))
        idle = [self._upload(row) for row in rows if row["id"] not in self._busy]
        idle.sort(key=lambda other: other.offset)
        while left > self._room(upload.size, spared):
            if not (upload.size <= spared and idle and idle[-1].offset):
                raise DiskFullError(errno.ENOSPC, f"there is no room for another {left:,} bytes of a shard")
            self.end(idle.pop())

    async def receive(
        self, upload: Upload, offset: int, pieces: AsyncIterator[bytes], *, spared: int = 0, coding: str = ""
    ) -> int:
        """Append incoming pieces; return how many bytes have arrived in all. An interruption loses none of them.

        Args:
            upload: the upload.
            offset: where the first piece begins in the file.
            pieces: the incoming data.
            spared: the size up to which it may use the disk's reserve.
            coding: the compression of the pieces, if any.

        Raises:
            DataError: they do not start where the file ends, or are longer than announced.
            DiskFullError: only the reserve is left.
        """
        end = upload.offset
        if offset != end:
            raise DataError(f"the upload is at {end}, not at {offset}: continue from there.")
        arrival = self._arrivals.setdefault(upload.id, _Arrival())
        # unknown until this call has ended properly: an interrupted one does not say how much it received
        travelled, arrival.travelled = arrival.travelled if end else 0, None

        def check_room() -> None:
            if self._room(upload.size, spared) <= 0:
                raise DiskFullError(errno.ENOSPC, f"there is no room for the rest of {upload.size:,} bytes")

        received = await append(
            upload.path, pieces, limit=upload.size, passing=arrival.passing, coding=coding, check_room=check_room
        )
        if travelled is not None:
            arrival.travelled = travelled + received
        return upload.offset

    def travelled(self, upload: Upload) -> int | None:
        """Return how many bytes an upload took on the wire; None if unknown, after an interruption."""
        return self._arrivals.get(upload.id, _Arrival()).travelled

    def digest(self, upload: Upload) -> str:
        """Return the digest of a complete upload's file, after making the file durable."""
        if upload.offset != upload.size:
            raise DataError(f"{upload.offset:,} of {upload.size:,} bytes are here: send the rest first.")
        with upload.path.open("rb") as file:
            os.fsync(file.fileno())  # a killed server may not have waited for its last writes
        return self._arrivals.get(upload.id, _Arrival()).passing.digest(upload.path)

    def end(self, upload: Upload) -> None:
        """Delete an upload that was finished or cancelled."""
        with self._database.change() as db:
            db.execute("DELETE FROM uploads WHERE id = ?", (upload.id,))
        self._arrivals.pop(upload.id, None)
        files.erase(upload.path)

    def end_all(self, client: str, *, but: str = "") -> None:
        """Cancel all uploads of a client: one could bring back what a later shard, or a withdrawal, removed.

        The upload of the file with the mark ``but`` stays.
        """
        for row in self._database.read("SELECT * FROM uploads WHERE client = ? AND mark != ?", (client, but)):
            self.end(self._upload(row))

    def expire(self) -> None:
        """Delete uploads that were not finished in time, and files that belong to no upload."""
        with self._database.change() as db:
            ends = dict(db.execute("SELECT id, expires FROM uploads").fetchall())
            over = self._terms.over(ends)
            db.executemany("DELETE FROM uploads WHERE id = ?", [(upload,) for upload in over])
        known = ends.keys() - over
        for ended in self._arrivals.keys() - known:
            self._arrivals.pop(ended, None)  # a call may be ending it at this moment
        files.sweep(self._folder, {f"{upload}.part" for upload in known})
