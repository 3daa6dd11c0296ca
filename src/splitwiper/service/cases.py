"""Cases: what clients asked for, as they signed it, and the key that each of them signs with.

A request is on file here before the server acts on it. The first key that a client signs with is remembered; a request
in its name that another key signed is refused, whoever holds a certificate for that name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from splitwiper.errors import DataError, ForbiddenError, FormatError, NotFoundError
from splitwiper.service.certificate.request import SignedRequest, read_request
from splitwiper.store.book import Book
from splitwiper.store.tickets import now
from splitwiper.wire import Request
from splitwiper.wire.messages import Level

SCHEMA = """
CREATE TABLE cases (
  ticket TEXT PRIMARY KEY, client TEXT NOT NULL, level TEXT NOT NULL, received TEXT NOT NULL, signed TEXT);
CREATE INDEX cases_by_client ON cases (client);
CREATE TABLE client_keys (client TEXT PRIMARY KEY, key TEXT NOT NULL, since TEXT NOT NULL);
CREATE TABLE dropped_keys (client TEXT NOT NULL, operator TEXT NOT NULL, reason TEXT NOT NULL, time TEXT NOT NULL);
"""


@dataclass(frozen=True)
class Case:
    """A request as it came.

    Attributes:
        ticket: its name.
        client: who asked.
        level: class, sample or client.
        received: when it came, by the server's clock.
        signed: the envelope that the client signed; None where signatures are not asked for.
    """

    ticket: str
    client: str
    level: Level
    received: str
    signed: Mapping[str, Any] | None


class Cases:
    """All of them, in the service's book."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def receive(self, request: Request, signed: Mapping[str, Any] | None, *, federation: str, must: bool) -> Case:
        """Put a request on file. Repeating it changes nothing.

        Args:
            request: what is asked, by whom.
            signed: the same, signed by the client.
            federation: the store that is asked.
            must: refuse a request without a signature.

        Raises:
            DataError: it is not signed, or what is signed is something else.
            ForbiddenError: another key signed than the client's.
        """
        if signed is None:
            if must:
                raise DataError(
                    "requests to forget must be signed by the client's own key: 'splitwiper forget' does that; see "
                    "the field 'signed' in the OpenAPI document."
                )
        else:
            try:
                made = read_request(signed)
            except FormatError as problem:
                raise DataError(str(problem)) from problem
            self._check(made, request, federation)
        with self._book.change() as db:
            db.execute(
                "INSERT OR IGNORE INTO cases VALUES (?, ?, ?, ?, ?)",
                (request.ticket, request.client, request.level, now(), json.dumps(signed) if signed else None),
            )
        found = self.find(request.ticket)
        if found is None or (found.client, found.level) != (request.client, request.level):
            raise DataError(f"ticket {request.ticket!r} is another request's: draw another one.")
        return found

    def _check(self, made: SignedRequest, request: Request, federation: str) -> None:
        told = (made.federation, made.client, made.ticket, made.level, made.commitment)
        if told != (federation, request.client, request.ticket, request.level, request.commitment):
            raise DataError(
                "what is signed is not this request: store, client, ticket, level and commitment must be the same."
            )
        with self._book.change() as db:
            db.execute("INSERT OR IGNORE INTO client_keys VALUES (?, ?, ?)", (made.client, made.key, now()))
        if self.key(made.client) != made.key:
            raise ForbiddenError(
                f"requests of {made.client!r} are signed with another key since its first one. Restore request-key.pem "
                "in the client's home, or have the operator drop the key that is remembered, once it is sure who asks."
            )

    def key(self, client: str) -> str | None:
        """The key that a client signs with, in hex."""
        row = self._book.one("SELECT key FROM client_keys WHERE client = ?", (client,))
        return None if row is None else str(row["key"])

    def drop_key(self, client: str, operator: str, reason: str) -> None:
        """Forget a client's key; the next one that it signs with is remembered. Who did so, and why, is kept.

        Raises:
            NotFoundError: there is none.
        """
        with self._book.change() as db:
            if not db.execute("DELETE FROM client_keys WHERE client = ?", (client,)).rowcount:
                raise NotFoundError(f"no key of client {client!r} is remembered.")
            db.execute("INSERT INTO dropped_keys VALUES (?, ?, ?, ?)", (client, operator, reason, now()))

    def find(self, ticket: str) -> Case | None:
        """A request."""
        row = self._book.one("SELECT * FROM cases WHERE ticket = ?", (ticket,))
        return None if row is None else _case(row)

    def every(self) -> list[Case]:
        """All requests, oldest first."""
        return [_case(row) for row in self._book.read("SELECT * FROM cases ORDER BY rowid")]

    def of(self, client: str) -> dict[str, Case]:
        """A client's requests by ticket, oldest first."""
        rows = self._book.read("SELECT * FROM cases WHERE client = ? ORDER BY rowid", (client,))
        return {row["ticket"]: _case(row) for row in rows}


def _case(row: Any) -> Case:
    return Case(
        row["ticket"],
        row["client"],
        row["level"],
        row["received"],
        json.loads(row["signed"]) if row["signed"] else None,
    )
