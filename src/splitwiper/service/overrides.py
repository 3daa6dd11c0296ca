"""Overrides: an operator lets the model answer on although a request waits, says why, and that is kept for ever."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from splitwiper.errors import NotFoundError
from splitwiper.store import ServerTree
from splitwiper.store.book import Book
from splitwiper.store.tickets import now

SCHEMA = """
CREATE TABLE overrides (
  ticket TEXT NOT NULL, operator TEXT NOT NULL, reason TEXT NOT NULL, time TEXT NOT NULL);
CREATE TRIGGER overrides_stay BEFORE DELETE ON overrides BEGIN SELECT RAISE(ABORT, 'overrides are kept'); END;
"""


@dataclass(frozen=True)
class Override:
    """Who let the model answer on while a request waited, when, and why."""

    ticket: str
    operator: str
    reason: str
    time: str


class Overrides:
    """All of them, in the service's book."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def add(self, tree: ServerTree, ticket: str, operator: str, reason: str) -> Override:
        """Let the model answer on while a request waits.

        Raises:
            NotFoundError: there is no such request, or it is settled.
        """
        if tree.ticket(ticket).state == "settled":
            raise NotFoundError(f"ticket {ticket!r} is settled: the model answers again.")
        made = Override(ticket, operator, reason, now())
        with self._book.change() as db:
            db.execute("INSERT INTO overrides VALUES (:ticket, :operator, :reason, :time)", asdict(made))
        return made

    def listed(self) -> list[Override]:
        """All that were ever made, oldest first."""
        return [Override(*row) for row in self._book.read("SELECT * FROM overrides ORDER BY rowid")]

    def tickets(self) -> set[str]:
        """Requests that do not stop the model from answering."""
        return {one.ticket for one in self.listed()}
