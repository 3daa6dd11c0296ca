"""The lease on a tree, as its book keeps it: who works there, and whether that still holds."""

from __future__ import annotations

import sqlite3
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

from splitwiper.errors import CorruptError, FormatError
from splitwiper.store.process import Process

_LAST = 1 << 62
"""A token beyond this was never given out."""


class Hold:
    """A lease in the hands of a piece of work in this process.

    It is over when the work says so, or when nothing refers to it any more: an interrupt may come at any moment, also
    in the middle of giving the lease back.
    """

    def __init__(self, book: Path, token: int) -> None:
        self.token = token
        self.stop = threading.Event()
        _holds[book, token] = self

    @property
    def is_over(self) -> bool:
        """Whether the work has ended."""
        return self.stop.is_set()

    def __del__(self) -> None:
        self.stop.set()  # ends the thread that renews the lease


_holds: WeakValueDictionary[tuple[Path, int], Hold] = WeakValueDictionary()


@dataclass(frozen=True)
class Lease:
    """A lease as the book has it.

    Attributes:
        token: the number that fences its holder.
        holder: who has it; None when nobody does.
        purpose: what for.
        since: the holder's last sign of life, by the machine's own clock that nobody sets.
        expires: when it ends, by the clock on the wall.
    """

    token: int
    holder: Process | None
    purpose: str
    since: float
    expires: float

    @classmethod
    def read(cls, db: sqlite3.Connection) -> Lease:
        """Return the lease in a book.

        No seal covers it, since it changes hands without the key. What this program never writes there was written by
        somebody else, and is refused like any other edit: a lease that is guessed at fences nobody.

        Raises:
            CorruptError: the record is gone, or is not one.
        """
        rows = db.execute("SELECT token, holder, purpose, since, expires FROM lease LIMIT 2").fetchall()
        if len(rows) != 1:
            raise CorruptError("the record of the lease is gone")
        token, holder, *rest = rows[0]
        if type(token) is not int or not 0 <= token < _LAST:
            raise CorruptError(f"the lease has the token {token!r}")
        if holder is None:
            return cls(token, None, "", 0.0, 0.0)
        purpose, since, expires = rest
        if not (isinstance(holder, str) and isinstance(purpose, str)):
            raise CorruptError("the holder of the lease is not a text")
        if not (isinstance(since, float) and isinstance(expires, float)):
            raise CorruptError(f"the lease runs from {since!r} to {expires!r}")
        try:
            return cls(token, Process.parse(holder), purpose, since, expires)
        except FormatError as problem:
            raise CorruptError(f"the holder of the lease cannot be read: {problem}") from problem

    def is_held(self, seconds: float) -> bool:
        """Whether the lease still stands.

        On one machine that is told by a clock that nobody sets: a jump of the other takes no lease from who is at
        work. Between machines, one that ends later than any lease can was written before the clock jumped back.

        Args:
            seconds: how long a lease lasts.
        """
        if self.holder is None:
            return False
        who, silent, now = self.holder, time.monotonic() - self.since, time.time()
        if who.is_here() and silent >= 0:
            return silent < seconds and who.may_be_alive()
        stands = now < self.expires and (who.is_here() or self.expires <= now + 2 * seconds)
        return stands and who.may_be_alive()

    def is_abandoned(self, book: Path) -> bool:
        """Whether this process took the lease, and none of its work holds it: it was interrupted, or found no room."""
        hold = _holds.get((book, self.token))
        return self.holder == Process.current() and (hold is None or hold.is_over)
