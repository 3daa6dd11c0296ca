"""Reading several databases as if at one instant: where another process changed one meanwhile, that is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from splitwiper.errors import BusyError, SplitWiperError
from splitwiper.store.book import Book


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
    """Where a database cannot be read, that is for the checks to tell."""
    try:
        return book.mark()
    except SplitWiperError:
        return None
    finally:
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
        raise BusyError(
            f"another process changed {book.path.parent} while it was being read: try again once it has finished."
        ) from failure
    if failure is not None:
        raise failure
