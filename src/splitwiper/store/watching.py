"""Reading several databases as if at one instant: where another process changed one meanwhile, that is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from splitwiper.errors import BusyError, SplitWiperError
from splitwiper.store.book import Book

_T = TypeVar("_T")
TRIES = 10


class _DisturbedError(BusyError):
    """Another process changed what was being read."""


class Watch:
    """Notices that databases were changed since they were added."""

    def __init__(self) -> None:
        self._marks: list[tuple[Book, bytes | None]] = []

    def add(self, book: Book) -> None:
        """Watch a database from now on."""
        self._marks.append((book, _mark(book)))

    def changed(self) -> Book | None:
        """Return a database that was changed meanwhile; None where all are as they were."""
        return next((book for book, mark in self._marks if _mark(book) != mark), None)


def _mark(book: Book) -> bytes | None:
    """Where a database cannot be read, that is for the checks to tell. One that was closed is closed again."""
    was_open = book.is_open
    try:
        return book.mark()
    except SplitWiperError:
        return None
    finally:
        if not was_open:
            book.close()


@contextmanager
def undisturbed() -> Iterator[Watch]:
    """Read databases, and refuse what was read while another process changed one of them.

    What was read then comes from two states, and whatever seems wrong with it may be right.

    Raises:
        BusyError: a database that was added to the watch was changed meanwhile.
    """
    watch, failure = Watch(), None
    try:
        yield watch
    except SplitWiperError as problem:
        failure = problem
    if book := watch.changed():
        raise _DisturbedError(
            f"another process changed {book.path.parent} while it was being read: try again once it has finished."
        ) from failure
    if failure is not None:
        raise failure


def read_undisturbed(read: Callable[[], _T], *books: Book) -> _T:
    """Return what is read while nobody changes these databases; where somebody does, read again.

    Raises:
        BusyError: somebody did, every time.
    """
    for turn in range(TRIES):
        try:
            with undisturbed() as watch:
                for book in books:
                    watch.add(book)
                return read()
        except _DisturbedError:
            if turn == TRIES - 1:
                raise
    raise AssertionError("unreachable")
