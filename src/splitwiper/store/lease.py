"""The lease on a store, as its database records it: which process works there, and whether the lease is valid."""

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
"""Tokens are always below this."""


class Hold:
    """A lease held by a piece of work in this process.

    It is over when the work ends, or when nothing refers to this object any more: an interrupt may come at any moment,
    even while the lease is being released.
    """

    def __init__(self, database: Path, token: int) -> None:
        self.token = token
        self.thread = threading.get_ident()
        self.stop = threading.Event()
        _holds[database, token] = self

    @property
    def is_over(self) -> bool:
        """Whether the work has ended."""
        return self.stop.is_set()

    def __del__(self) -> None:
        self.stop.set()  # ends the thread that renews the lease


_holds: WeakValueDictionary[tuple[Path, int], Hold] = WeakValueDictionary()


@dataclass(frozen=True)
class Lease:
    """A lease as stored in the database.

    Attributes:
        token: the number that fences its holder.
        holder: the process that holds it; None if none does.
        purpose: the holder's work.
        since: the holder's last renewal, by the machine's monotonic clock.
        expires: when it ends, by the wall clock.
    """

    token: int
    holder: Process | None
    purpose: str
    since: float
    expires: float

    @classmethod
    def read(cls, db: sqlite3.Connection) -> Lease:
        """Read the lease from a database.

        No seal covers it, since it changes hands without the key. A value that this program never writes there is
        refused like any other edit: a guessed lease would fence nobody.
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
        """Return whether the lease, which lasts for ``seconds`` after each renewal, is still valid.

        On one machine the monotonic clock decides, so a jump of the wall clock takes no lease from a process at work.
        Between machines, a lease that ends later than any lease can was written before the clock jumped back.
        """
        if self.holder is None:
            return False
        who, silent, now = self.holder, time.monotonic() - self.since, time.time()
        # the monotonic clock compares only within one boot of one machine, which `is_here` makes sure of
        if who.is_here() and silent >= 0:
            return silent < seconds and who.may_be_alive()
        # Another machine: only the wall clocks can be compared. A lease that ends later than any lease can was written
        # by a clock that was ahead, or before this one was set back; believing it could block the store for years.
        plausible = who.is_here() or self.expires <= now + 2 * seconds
        return now < self.expires and plausible and who.may_be_alive()

    def is_abandoned(self, database: Path) -> bool:
        """Return whether this process took the lease but none of its work holds it: interrupted, or out of room."""
        hold = _holds.get((database, self.token))
        return self.holder == Process.current() and (hold is None or hold.is_over)
