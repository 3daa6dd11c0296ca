"""Operators' decisions, permanently recorded with their name and reason.

An operator can keep the model serving although requests are open, and evict and admit clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from splitwiper.errors import NotFoundError
from splitwiper.store import ServerStore
from splitwiper.store.database import Database
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
    """A decision to keep the model serving while requests are open: who, when, and why.

    It is about one request (``ticket``), or until some time about all requests of one client.
    """

    ticket: str
    operator: str
    reason: str
    time: str
    client: str = ""
    until: str = ""


class Overrides:
    """Decisions in the service's database. An older database gets the table about clients when it is first opened."""

    def __init__(self, database: Database) -> None:
        self._database = database
        if database.one("SELECT 1 FROM sqlite_master WHERE name = 'decisions_stay'") is None:
            with database.change() as db:
                for statement in _DECISIONS:
                    db.execute(statement)

    def add(self, store: ServerStore, ticket: str, operator: str, reason: str) -> Override:
        """Keep the model serving while a request is open; refuse a request that is settled, or unknown."""
        if store.ticket(ticket).state == "settled":
            raise NotFoundError(f"ticket {ticket!r} is settled: the model answers again.")
        override = Override(ticket, operator, reason, now())
        with self._database.change() as db:
            db.execute("INSERT INTO overrides VALUES (?, ?, ?, ?)", (ticket, operator, reason, override.time))
        return override

    def add_client(self, client: str, operator: str, reason: str, *, hours: float) -> Override:
        """Keep the model serving for some hours, whatever requests of one client are open or arrive."""
        until = (datetime.now(UTC) + timedelta(hours=hours)).isoformat(timespec="seconds")
        time = self.decide(_KEEP, client, operator, reason, until=until)
        return Override("", operator, reason, time, client, until)

    def decide(self, kind: str, client: str, operator: str, reason: str, *, until: str = "") -> str:
        """Record an operator's decision about a client; return the time."""
        time = now()
        with self._database.change() as db:
            db.execute("INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?)", (kind, client, operator, reason, time, until))
        return time

    def reason(self, kind: str, client: str) -> str:
        """Return the newest reason for a decision about a client; empty if there is none."""
        row = self._database.one(
            "SELECT reason FROM decisions WHERE kind = ? AND client = ? ORDER BY rowid DESC LIMIT 1", (kind, client)
        )
        return "" if row is None else str(row["reason"])

    def listed(self) -> list[Override]:
        """Return all decisions to keep the model serving, by time."""
        rows = self._database.read("SELECT * FROM overrides ORDER BY rowid")
        about_clients = "SELECT '', operator, reason, time, client, until FROM decisions WHERE kind = ? ORDER BY rowid"
        rows += self._database.read(about_clients, (_KEEP,))
        return [Override(*row) for row in sorted(rows, key=lambda row: str(row["time"]))]

    def stopping(self, waiting: Iterable[Ticket]) -> list[Ticket]:
        """Return those open requests that withdraw the model."""
        waiting, moment = list(waiting), now()
        if not waiting:  # the usual case: every prediction asks
            return []
        tickets, clients = set[str](), set[str]()
        for override in self.listed():
            if not override.client:  # about one request, for good
                tickets.add(override.ticket)
            elif override.until > moment:
                clients.add(override.client)
        return [ticket for ticket in waiting if ticket.id not in tickets and ticket.client not in clients]
