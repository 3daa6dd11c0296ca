"""Read several databases consistently: a change by another process meanwhile is detected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from splitwiper.errors import BusyError, SplitWiperError
from splitwiper.store.database import Database

_T = TypeVar("_T")
TRIES = 10


class _DisturbedError(BusyError):
    """Another process changed a database while it was being read."""


class StepWatcher:
    """Detects that databases were changed since they were added."""

    def __init__(self) -> None:
        self._stamps: list[tuple[Database, bytes | None]] = []

    def add(self, database: Database) -> None:
        """Watch a database from now on."""
        self._stamps.append((database, _stamp(database)))

    def changed(self) -> Database | None:
        """Return a database that was changed meanwhile, or None."""
        for database, stamp in self._stamps:
            if _stamp(database) != stamp:
                return database
        return None


def _stamp(database: Database) -> bytes | None:
    """Return a database's change stamp; None if it cannot be read, which checks report."""
    try:
        return database.change_stamp()
    except SplitWiperError:
        return None


@contextmanager
def databases_unchanged() -> Iterator[StepWatcher]:
    """Read databases, and refuse the result if another process changed one of them meanwhile.

    Such a result mixes two states, so an apparent fault in it may be none.

    Raises:
        BusyError: a database that was added to the watch was changed meanwhile.
    """
    # An error is held back until it is known whether the reader saw one state: a reader that saw half of another
    # process's change may find a fault where there is none.
    watch, failure = StepWatcher(), None
    try:
        yield watch
    except SplitWiperError as problem:
        failure = problem
    if database := watch.changed():
        raise _DisturbedError(
            f"another process changed {database.path.parent} while it was being read: try again once it has finished."
        ) from failure
    if failure is not None:
        raise failure


def read_undisturbed(read: Callable[[], _T], *databases: Database) -> _T:
    """Return the result of a read during which nobody changed these databases; repeat it if somebody did."""

    def once() -> _T:
        with databases_unchanged() as watch:
            for database in databases:
                watch.add(database)
            return read()

    for _ in range(TRIES - 1):
        with suppress(_DisturbedError):
            return once()
    return once()
