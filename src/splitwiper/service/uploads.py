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
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from splitwiper.errors import DataError, DiskFullError, NotFoundError, QuotaError
from splitwiper.service.appending import append
from splitwiper.service.expiry import Expiry
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


def drop(database: Database, folder: Path, client: str) -> None:
    """Cancel all uploads of a client, from another process than the one that receives them."""
    with database.change() as db:
        rows = db.execute("SELECT id FROM uploads WHERE client = ?", (client,)).fetchall()
        db.execute("DELETE FROM uploads WHERE client = ?", (client,))
    for row in rows:
        files.erase(folder / f"{row['id']}.part")


class Uploads:
    """Uploads that were begun and not finished.

    Args:
        folder: the folder of their files.
        database: the service's database.
        config: limits on their number, size and age.
        clock: a monotonic clock.
    """

    def __init__(
        self, folder: Path, database: Database, config: ServiceConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._database, self._config = folder, database, config
        self._terms = Expiry(config.patience, clock)
        self._passing: dict[str, Passing] = {}
        self._travelled: dict[str, int] = {}
        self.is_busy: Callable[[str], bool] = lambda _: False
        """Return whether a call is currently sending to an upload."""
        files.make_folder(folder)

    def begin(
        self, client: str, size: int, mark: str, statement: Statement, *, signed: str | None = None, spared: int = 0
    ) -> Upload:
        """Begin an upload, or return the one that was begun for the same file.

        Args:
            client: the client's name.
            size: the size of the whole file, in bytes.
            mark: the client's identifier for the file. If two files share a mark, the digest of what
                arrives is neither's, and nothing is accepted.
            statement: the client's statement about it.
            signed: the site's signed statement about it, as JSON.
            spared: the size up to which it may use the disk's reserve.

        Raises:
            DataError: it is larger than allowed.
            QuotaError: the client has too many unfinished uploads.
            DiskFullError: there is no room for it.
        """
        if not 0 < size <= self._config.largest:
            raise DataError(f"a shard of {size:,} bytes is not accepted here: the limit is {self._config.largest:,}.")
        # first: what has expired must not count against the client
        self.expire()
        said = json.dumps(asdict(statement), sort_keys=True)
        with self._database.change() as db:
            mine = db.execute("SELECT * FROM uploads WHERE client = ?", (client,)).fetchall()
            for row in mine:
                if (row["size"], row["mark"]) == (size, mark):
                    db.execute("UPDATE uploads SET statement = ?, signed = ? WHERE id = ?", (said, signed, row["id"]))
                    return self._upload({**dict(row), "statement": said, "signed": signed})
            if len(mine) >= self._config.unfinished:
                raise QuotaError(
                    f"{client!r} has begun {len(mine)} uploads and not finished them: finish or cancel one first."
                )
        self._make_room(client, size, size, spared)
        with self._database.change() as db:
            upload = secrets.token_hex(16)
            row = {
                "id": upload,
                "client": client,
                "size": size,
                "mark": mark,
                "statement": said,
                "expires": self._terms.begin(upload),
                "signed": signed,
            }
            db.execute("INSERT INTO uploads VALUES (:id, :client, :size, :mark, :statement, :expires, :signed)", row)
        return self._upload(row)

    def find(self, client: str, upload: str) -> Upload:
        """Return an upload of a client.

        Raises:
            NotFoundError: the client has no such upload.
        """
        row = self._database.one("SELECT * FROM uploads WHERE id = ? AND client = ?", (upload, client))
        if row is None:
            raise NotFoundError(
                f"there is no upload {upload!r}: it was finished, cancelled or has expired; begin again."
            )
        return self._upload(dict(row))

    def still(self, upload: Upload) -> None:
        """Check that an upload was not cancelled while it was sent to; if it was, erase what arrived.

        Raises:
            NotFoundError: it was cancelled.
        """
        try:
            self.find(upload.client, upload.id)
        except NotFoundError:
            self.end(upload)
            raise

    def _upload(self, row: dict[str, object]) -> Upload:
        said = json.loads(str(row["statement"]))
        statement = Statement(**{**said, "tickets": tuple(said["tickets"]), "spent": Spent(**said["spent"])})
        values = {key: row[key] for key in ("id", "client", "size", "mark", "expires", "signed")}
        return Upload(**values, statement=statement, path=self._folder / f"{row['id']}.part")  # type: ignore[arg-type]

    def _room(self, size: int, spared: int) -> int:
        """Return how many bytes an upload of this size may take: the free ones, less the disk's reserve.

        One that may use the reserve leaves half of what is free, so that no client takes it all from the others,
        however slowly it sends.
        """
        free = os.statvfs(self._folder)
        reserve = int(self._config.reserve * free.f_blocks)
        if size <= spared:
            reserve = min(reserve, free.f_bavail // 2)
        return (free.f_bavail - reserve) * free.f_frsize

    def _make_room(self, client: str, size: int, left: int, spared: int) -> None:
        """Make sure that there is room for the rest of an upload.

        One that forgets rows has priority: uploads of other clients that nobody is sending to are cancelled for it, the
        largest first. They can be begun again.

        Raises:
            DiskFullError: there is not enough room.
        """
        if left <= self._room(size, spared):
            return
        rows = self._database.read("SELECT * FROM uploads WHERE client != ?", (client,))
        idle = [self._upload(dict(row)) for row in rows if not self.is_busy(row["id"])]
        idle.sort(key=lambda one: one.offset)
        while left > self._room(size, spared):
            if not (size <= spared and idle and idle[-1].offset):
                raise DiskFullError(errno.ENOSPC, f"there is no room for another {left:,} bytes of a shard")
            self.end(idle.pop())

    def make_room(self, upload: Upload, spared: int) -> None:
        """Make sure that there is room for the rest of an upload: others may have taken it since it was begun.

        Args:
            upload: the upload.
            spared: the size up to which it may use the disk's reserve.

        Raises:
            DiskFullError: there is not enough room.
        """
        self._make_room(upload.client, upload.size, upload.size - upload.offset, spared)

    async def receive(
        self, upload: Upload, offset: int, pieces: AsyncIterator[bytes], *, spared: int = 0, coding: str = ""
    ) -> int:
        """Append incoming pieces; return how many bytes have arrived in all. An interruption loses none of them.

        Args:
            upload: the upload.
            offset: the offset of the first piece in the file.
            pieces: the incoming data.
            spared: the size up to which it may use the disk's reserve.
            coding: the compression of the pieces, if any.

        Raises:
            DataError: they do not start where the file ends, or are longer than announced.
            DiskFullError: only the reserve is left.
        """
        here = upload.offset
        if offset != here:
            raise DataError(f"the upload is at {here}, not at {offset}: continue from there.")
        passing = self._passing.setdefault(upload.id, Passing())
        travelled = self._travelled.pop(upload.id, None if here else 0)

        def check_room() -> None:
            if self._room(upload.size, spared) <= 0:
                raise DiskFullError(errno.ENOSPC, f"there is no room for the rest of {upload.size:,} bytes")

        came = await append(
            upload.path, pieces, limit=upload.size, passing=passing, coding=coding, check_room=check_room
        )
        if travelled is not None:
            self._travelled[upload.id] = travelled + came
        return upload.offset

    def travelled(self, upload: Upload) -> int | None:
        """Return how many bytes an upload took on the wire; None if unknown, after an interruption."""
        return self._travelled.get(upload.id)

    def digest(self, upload: Upload) -> str:
        """Return the digest of an upload's file, after making the file durable.

        Raises:
            DataError: it is incomplete.
        """
        if upload.offset != upload.size:
            raise DataError(f"{upload.offset:,} of {upload.size:,} bytes are here: send the rest first.")
        with upload.path.open("rb") as file:
            os.fsync(file.fileno())  # a killed server may not have waited for its last writes
        return self._passing.get(upload.id, Passing()).digest(upload.path)

    def end(self, upload: Upload) -> None:
        """Delete an upload that was finished or cancelled."""
        with self._database.change() as db:
            db.execute("DELETE FROM uploads WHERE id = ?", (upload.id,))
        self._passing.pop(upload.id, None)
        self._travelled.pop(upload.id, None)
        files.erase(upload.path)

    def end_all(self, client: str, *, but: str = "") -> None:
        """Cancel all uploads of a client: one could bring back what a later shard, or a withdrawal, removed.

        Args:
            client: the client.
            but: the mark of a file whose upload stays.
        """
        for row in self._database.read("SELECT * FROM uploads WHERE client = ? AND mark != ?", (client, but)):
            self.end(self._upload(dict(row)))

    def begun(self, client: str) -> list[str]:
        """Return the ids of a client's unfinished uploads."""
        return [row["id"] for row in self._database.read("SELECT id FROM uploads WHERE client = ?", (client,))]

    def expire(self) -> None:
        """Delete uploads that were not finished in time, and files that belong to no upload."""
        with self._database.change() as db:
            rows = db.execute("SELECT id, expires FROM uploads").fetchall()
            over = {row["id"] for row in rows if self._terms.is_over(row["id"], row["expires"])}
            db.executemany("DELETE FROM uploads WHERE id = ?", [(name,) for name in over])
        known = {row["id"] for row in rows} - over
        self._terms.keep(known)
        for gone in (self._passing.keys() | self._travelled.keys()) - known:
            self._passing.pop(gone, None)
            self._travelled.pop(gone, None)
        files.sweep(self._folder, {f"{name}.part" for name in known})
