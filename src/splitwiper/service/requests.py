"""Requests to forget as sites sent them: stored before the server acts on them, followed up to their certificates.

A request passes these stages: received, accepted, erased, retrained, certified. If the server held no shard of the
client, there is nothing to erase or retrain: the request is settled immediately.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from splitwiper.errors import DataError
from splitwiper.service.certificate import Keyring, SignedRequest, certify
from splitwiper.service.certificate.issuing import kept_at
from splitwiper.service.client_keys import ClientKeys, read_signed
from splitwiper.store import ServerStore
from splitwiper.store.database import Database
from splitwiper.store.tickets import now
from splitwiper.wire import Request, Ticket
from splitwiper.wire.messages import Level

SCHEMA = """
CREATE TABLE cases (
  ticket TEXT PRIMARY KEY, client TEXT NOT NULL, level TEXT NOT NULL, commitment TEXT NOT NULL,
  received TEXT NOT NULL, signed TEXT);
CREATE INDEX cases_by_client ON cases (client);
"""
Stage = Literal["received", "accepted", "erased", "retrained", "settled", "certified"]


@dataclass(frozen=True)
class RequestRecord:
    """A request as it was received.

    Attributes:
        ticket: the request's id.
        client: the name of the client.
        level: class, sample or client.
        commitment: commits to the rows that the client suppresses.
        received: the time of arrival, by the server's clock.
        signed: the envelope that the client signed; None if signatures are not required.
    """

    ticket: str
    client: str
    level: Level
    commitment: str
    received: str
    signed: Mapping[str, Any] | None

    @property
    def request(self) -> Request:
        """The request, without its time and signature."""
        return Request(self.ticket, self.client, self.level, self.commitment)


class RequestRecords:
    """All request records, in the service's database.

    Args:
        database: the service's database.
        signed_only: refuse requests that are not signed.

    Attributes:
        keys: the sites' registered keys, with which requests must be signed.
    """

    def __init__(self, database: Database, *, signed_only: bool = True) -> None:
        self._database, self.keys = database, ClientKeys(database, signed_only=signed_only)

    def receive(self, request: Request, signed: Mapping[str, Any] | None, *, federation: str) -> RequestRecord:
        """Store a request. Repeating it changes nothing.

        Args:
            request: the request.
            signed: the same, signed by the client.
            federation: the id of the server's store.

        Raises:
            DataError: it is not signed, or the signed request differs.
            ForbiddenError: it was not signed with the client's key.
        """
        if signed is not None:
            self._check(read_signed(SignedRequest, signed), request, federation)
        elif self.keys.signed_only:
            raise DataError(
                "requests to forget must be signed by the client's own key: 'splitwiper forget' does that; see the "
                "field 'signed' in the OpenAPI document."
            )
        text = json.dumps(signed) if signed else None
        row = (request.ticket, request.client, request.level, request.commitment, now(), text)
        with self._database.change() as db:
            db.execute("INSERT OR IGNORE INTO cases VALUES (?, ?, ?, ?, ?, ?)", row)
        found = self.find(request.ticket)
        if found is None or found.request != request:
            raise DataError(f"ticket {request.ticket!r} is another request's: draw another one.")
        return found

    def _check(self, made: SignedRequest, request: Request, federation: str) -> None:
        told = (made.federation, made.client, made.ticket, made.level, made.commitment)
        if told != (federation, request.client, request.ticket, request.level, request.commitment):
            raise DataError(
                "the signed request is another one: store, client, ticket, level and commitment must be the same."
            )
        self.keys.check(made.client, made.key)

    def find(self, ticket: str) -> RequestRecord | None:
        """Return the record of a request; None if there is none."""
        row = self._database.one("SELECT * FROM cases WHERE ticket = ?", (ticket,))
        return None if row is None else _record(row)

    def every(self) -> list[RequestRecord]:
        """Return all requests, oldest first."""
        return [_record(row) for row in self._database.read("SELECT * FROM cases ORDER BY rowid")]

    def of(self, client: str) -> dict[str, RequestRecord]:
        """Return a client's requests by ticket, oldest first."""
        rows = self._database.read("SELECT * FROM cases WHERE client = ? ORDER BY rowid", (client,))
        return {row["ticket"]: _record(row) for row in rows}


def due(ticket: Ticket, record: RequestRecord | None, days: float) -> datetime:
    """Return the time by which a request must be settled: days after it was received, however late it was accepted."""
    return datetime.fromisoformat(record.received if record else ticket.received) + timedelta(days=days)


def stages(store: ServerStore, ticket: Ticket, record: RequestRecord | None) -> dict[Stage, str]:
    """Return the stages that a request has reached, in order, with their times.

    Args:
        store: the server's store.
        ticket: the request's ticket.
        record: the request as it was received; None if it did not come over the network.
    """
    found: dict[Stage, str] = {"received": record.received if record else ticket.received}
    found["accepted"] = ticket.received
    if ticket.erased:
        found["erased"] = ticket.erased
    if ticket.settled:
        found["retrained" if ticket.erased else "settled"] = ticket.settled
        path = kept_at(store, ticket.id)
        if path.exists():
            found["certified"] = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    return found


def certified(store: ServerStore, records: RequestRecords, ticket: str, *, days: float) -> dict[str, Any]:
    """Return the certificate of a settled request, with the client's signed request, and its deadline.

    Args:
        store: the server's store.
        records: the requests as they were received.
        ticket: the request's ticket.
        days: the number of days within which it was to be settled.
    """
    record = records.find(ticket)
    until, signed = due(store.ticket(ticket), record, days), record.signed if record else None
    return certify(store, ticket, Keyring.of(store).key(), due=until, request=signed)


def _record(row: Any) -> RequestRecord:
    signed = json.loads(row["signed"]) if row["signed"] else None
    return RequestRecord(row["ticket"], row["client"], row["level"], row["commitment"], row["received"], signed)
