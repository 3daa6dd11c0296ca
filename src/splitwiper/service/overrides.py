"""What operators decide, with their name and reason, kept for ever.

An operator can let the model answer although requests wait, and evict and admit clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from splitwiper.errors import NotFoundError
from splitwiper.store import ServerTree
from splitwiper.store.book import Book
from splitwiper.store.tickets import now
from splitwiper.wire import Ticket

SCHEMA = """
CREATE TABLE overrides (
  ticket TEXT NOT NULL, operator TEXT NOT NULL, reason TEXT NOT NULL, time TEXT NOT NULL);
CREATE TRIGGER overrides_stay BEFORE DELETE ON overrides BEGIN SELECT RAISE(ABORT, 'overrides are kept'); END;
"""
_DECISIONS = (
    "CREATE TABLE IF NOT EXISTS decisions (kind TEXT NOT NULL, client TEXT NOT NULL, operator TEXT NOT NULL, "
    "reason TEXT NOT NULL, time TEXT NOT NULL, until TEXT NOT NULL)",
    "CREATE TRIGGER IF NOT EXISTS decisions_stay BEFORE DELETE ON decisions "
    "BEGIN SELECT RAISE(ABORT, 'decisions are kept'); END",
)
_KEEP = "keep-serving"


@dataclass(frozen=True)
class Override:
    """Who let the model answer on while requests waited, when, and why.

    Attributes:
        ticket: the request; empty where it is about all requests of a client.
        client: the client; empty where it is about one request.
        until: until when a client's requests do not stop the model.
    """

    ticket: str
    operator: str
    reason: str
    time: str
    client: str = ""
    until: str = ""


class Overrides:
    """All of them, in the service's database. An older database gets the table for clients when it is first opened."""

    def __init__(self, book: Book) -> None:
        self._book = book
        if book.one("SELECT 1 FROM sqlite_master WHERE name = 'decisions_stay'") is None:
            with book.change() as db:
                for statement in _DECISIONS:
                    db.execute(statement)

    def add(self, tree: ServerTree, ticket: str, operator: str, reason: str) -> Override:
        """Let the model answer on while a request waits.

        Raises:
            NotFoundError: there is no such request, or it is settled.
        """
        if tree.ticket(ticket).state == "settled":
            raise NotFoundError(f"ticket {ticket!r} is settled: the model answers again.")
        made = Override(ticket, operator, reason, now())
        with self._book.change() as db:
            db.execute("INSERT INTO overrides VALUES (?, ?, ?, ?)", (ticket, operator, reason, made.time))
        return made

    def add_client(self, client: str, operator: str, reason: str, *, hours: float) -> Override:
        """Let the model answer on, for so many hours, whatever requests of one client wait or come."""
        until = (datetime.now(UTC) + timedelta(hours=hours)).isoformat(timespec="seconds")
        time = self.decide(_KEEP, client, operator, reason, until=until)
        return Override("", operator, reason, time, client, until)

    def decide(self, kind: str, client: str, operator: str, reason: str, *, until: str = "") -> str:
        """Record what an operator decides about a client; returns the time."""
        time = now()
        with self._book.change() as db:
            db.execute("INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?)", (kind, client, operator, reason, time, until))
        return time

    def reason(self, kind: str, client: str) -> str:
        """Return the newest reason for a decision about a client; empty where there was none."""
        row = self._book.one(
            "SELECT reason FROM decisions WHERE kind = ? AND client = ? ORDER BY rowid DESC LIMIT 1", (kind, client)
        )
        return "" if row is None else str(row["reason"])

    def listed(self) -> list[Override]:
        """All that let the model answer on, by time."""
        rows = self._book.read("SELECT * FROM decisions WHERE kind = ? ORDER BY rowid", (_KEEP,))
        found = [Override(*row) for row in self._book.read("SELECT * FROM overrides ORDER BY rowid")]
        found += [Override("", r["operator"], r["reason"], r["time"], r["client"], r["until"]) for r in rows]
        return sorted(found, key=lambda one: one.time)

    def stopping(self, waiting: Iterable[Ticket]) -> list[Ticket]:
        """Return those of the requests that wait which stop the model from answering."""
        waiting = list(waiting)
        made, moment = self.listed() if waiting else [], now()
        tickets = {one.ticket for one in made}
        clients = {one.client for one in made if one.client and one.until > moment}
        return [one for one in waiting if one.id not in tickets and one.client not in clients]
