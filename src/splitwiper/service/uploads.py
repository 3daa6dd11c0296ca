"""Uploads in pieces: started, resumed after an interruption, finished; straight to disk, checksummed.

The service's book describes each upload (client, size, mark, statement). The length of its file says how much of it has
arrived, so the two cannot disagree, at whatever moment the server dies. Digests are kept only in memory: after a
restart they are computed from the file. The time that each upload has left is kept in memory too, so that changing
the clock ends no upload in progress.
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
from splitwiper.service.settings import ServiceConfig
from splitwiper.service.terms import Terms
from splitwiper.store import files
from splitwiper.store.book import Book
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
        """How much of it is here."""
        return self.path.stat().st_size if self.path.exists() else 0


def drop(book: Book, folder: Path, client: str) -> None:
    """Give up all uploads of a client, from another process than the one that receives them."""
    with book.change() as db:
        rows = db.execute("SELECT id FROM uploads WHERE client = ?", (client,)).fetchall()
        db.execute("DELETE FROM uploads WHERE client = ?", (client,))
    for row in rows:
        files.erase(folder / f"{row['id']}.part")


class Uploads:
    """Uploads that were begun and not finished.

    Args:
        folder: of their files.
        book: the service's.
        config: how many there may be, how large, and for how long.
        clock: one that nobody sets.
    """

    def __init__(
        self, folder: Path, book: Book, config: ServiceConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._book, self._config = folder, book, config
        self._terms = Terms(config.patience, clock)
        self._passing: dict[str, Passing] = {}
        self._travelled: dict[str, int] = {}
        self.is_busy: Callable[[str], bool] = lambda _: False
        """Whether a call is sending to an upload just now."""
        files.make_folder(folder)

    def begin(
        self, client: str, size: int, mark: str, statement: Statement, *, signed: str | None = None, spared: int = 0
    ) -> Upload:
        """Begin an upload, or find the one that was begun for the same file.

        Args:
            client: whose it is.
            size: of the whole file.
            mark: what the client tells its files apart by. Where two have one mark, the digest of what arrives is
                neither's, and nothing is taken.
            statement: what the client says with it.
            signed: what the client's own key signed about it.
            spared: the size up to which it may use the disk's reserve.

        Raises:
            DataError: it is larger than allowed.
            QuotaError: the client has begun too many.
            DiskFullError: there is no room for it.
        """
        if not 0 < size <= self._config.largest:
            raise DataError(f"a shard of {size:,} bytes is not accepted here: the limit is {self._config.largest:,}.")
        self.expire()
        said = json.dumps(asdict(statement), sort_keys=True)
        with self._book.change() as db:
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
        with self._book.change() as db:
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
        """An upload of a client.

        Raises:
            NotFoundError: it has none of that name.
        """
        row = self._book.one("SELECT * FROM uploads WHERE id = ? AND client = ?", (upload, client))
        if row is None:
            raise NotFoundError(f"there is no upload {upload!r}: it was finished, cancelled or given up; begin again.")
        return self._upload(dict(row))

    def still(self, upload: Upload) -> None:
        """See that an upload was not given up while it was sent to; what came of it goes, if it was.

        Raises:
            NotFoundError: it was.
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
        """Return how many bytes an upload of this size may take: those that are free, less the disk's reserve."""
        free = os.statvfs(self._folder)
        reserve = 0 if size <= spared else int(self._config.reserve * free.f_blocks)
        return (free.f_bavail - reserve) * free.f_frsize

    def _make_room(self, client: str, size: int, left: int, spared: int) -> None:
        """See that there is room for what is left of an upload.

        One that forgets rows goes first: uploads of other clients that nobody is sending to are given up for it, the
        largest first. They can be begun again.

        Raises:
            DiskFullError: there is not enough.
        """
        if left <= self._room(size, spared):
            return
        rows = self._book.read("SELECT * FROM uploads WHERE client != ?", (client,))
        idle = [self._upload(dict(row)) for row in rows if not self.is_busy(row["id"])]
        idle.sort(key=lambda one: one.offset)
        while left > self._room(size, spared):
            if not (size <= spared and idle and idle[-1].offset):
                raise DiskFullError(errno.ENOSPC, f"there is no room for another {left:,} bytes of a shard")
            self.end(idle.pop())

    def make_room(self, upload: Upload, spared: int) -> None:
        """See that there is room for the rest of an upload: others may have taken it since it was begun.

        Args:
            upload: the upload.
            spared: the size up to which it may use the disk's reserve.

        Raises:
            DiskFullError: there is not enough.
        """
        self._make_room(upload.client, upload.size, upload.size - upload.offset, spared)

    async def receive(
        self, upload: Upload, offset: int, pieces: AsyncIterator[bytes], *, spared: int = 0, coding: str = ""
    ) -> int:
        """Append what comes in, and say how much is here then. What came before an interruption stays.

        Args:
            upload: where to.
            offset: where the pieces begin.
            pieces: what comes in.
            spared: the size up to which it may use the disk's reserve.
            coding: how it is compressed, if at all.

        Raises:
            DataError: it does not go on where the file ends, or is longer than was said.
            DiskFullError: there is no room left but the reserve.
        """
        here = upload.offset
        if offset != here:
            raise DataError(f"the upload is at {here}, not at {offset}: go on from there.")
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
        """Return how many bytes an upload took on its way; None where it was interrupted, and nobody knows."""
        return self._travelled.get(upload.id)

    def digest(self, upload: Upload) -> str:
        """The digest of an upload's file, which is durable then.

        Raises:
            DataError: it is not whole.
        """
        if upload.offset != upload.size:
            raise DataError(f"{upload.offset:,} of {upload.size:,} bytes are here: send the rest first.")
        with upload.path.open("rb") as file:
            os.fsync(file.fileno())  # a server that was killed may have written what it did not wait for
        return self._passing.get(upload.id, Passing()).digest(upload.path)

    def end(self, upload: Upload) -> None:
        """Forget an upload: it was finished, or given up."""
        with self._book.change() as db:
            db.execute("DELETE FROM uploads WHERE id = ?", (upload.id,))
        self._passing.pop(upload.id, None)
        self._travelled.pop(upload.id, None)
        files.erase(upload.path)

    def end_all(self, client: str, *, but: str = "") -> None:
        """Give up whatever a client has begun: it would bring back what a later shard, or a withdrawal, took away.

        Args:
            client: the client.
            but: the mark of a file whose upload stays.
        """
        for row in self._book.read("SELECT * FROM uploads WHERE client = ? AND mark != ?", (client, but)):
            self.end(self._upload(dict(row)))

    def begun(self, client: str) -> list[str]:
        """Return the names of the uploads that a client has begun and not finished."""
        return [row["id"] for row in self._book.read("SELECT id FROM uploads WHERE client = ?", (client,))]

    def expire(self) -> None:
        """Give up what was not finished in time, and files that no upload is of."""
        with self._book.change() as db:
            rows = db.execute("SELECT id, expires FROM uploads").fetchall()
            over = {row["id"] for row in rows if self._terms.is_over(row["id"], row["expires"])}
            db.executemany("DELETE FROM uploads WHERE id = ?", [(name,) for name in over])
        known = {row["id"] for row in rows} - over
        self._terms.keep(known)
        for gone in (self._passing.keys() | self._travelled.keys()) - known:
            self._passing.pop(gone, None)
            self._travelled.pop(gone, None)
        files.sweep(self._folder, {f"{name}.part" for name in known})
