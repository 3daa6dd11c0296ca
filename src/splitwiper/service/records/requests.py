"""Requests to forget as sites sent them: stored before the server acts on them, followed up to their certificates.

A request passes these stages: received, accepted, erased, retrained, certified. If the server held no shard of the
client, there is nothing to erase or retrain: the request is settled immediately.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from splitwiper.errors import DataError
from splitwiper.service.certificate import Keyring, SignedRequest, certify
from splitwiper.service.certificate.issuing import kept_at
from splitwiper.service.records.client_keys import ClientKeys, read_signed
from splitwiper.service.records.expiry import Expiry
from splitwiper.store import ServerStore, exclusion
from splitwiper.store.database import Database
from splitwiper.store.tickets import now
from splitwiper.wire import Request, Ticket

_log = logging.getLogger("splitwiper.service")
SCHEMA = """
CREATE TABLE cases (
  ticket TEXT PRIMARY KEY, client TEXT NOT NULL, level TEXT NOT NULL, commitment TEXT NOT NULL,
  received TEXT NOT NULL, signed TEXT);
CREATE INDEX cases_by_client ON cases (client);
"""
Stage = Literal["received", "accepted", "erased", "retrained", "settled", "certified"]


@dataclass(frozen=True)
class RequestRecord:
    """A request as it was received: at what time by the server's clock, and in which envelope if it was signed."""

    request: Request
    received: str
    signed: Mapping[str, Any] | None


class RequestRecords:
    """All request records, in the service's database. With ``signed_only``, unsigned requests are refused."""

    def __init__(self, database: Database, *, signed_only: bool = True) -> None:
        self._database, self.keys = database, ClientKeys(database, signed_only=signed_only)

    def receive(self, request: Request, signed: Mapping[str, Any] | None, *, federation: str) -> RequestRecord:
        """Store a request, and its signed form if the client signs. Repeating it changes nothing.

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
        record = self.find(request.ticket)
        if record is None or record.request != request:
            raise DataError(f"ticket {request.ticket!r} is another request's: draw another one.")
        return record

    def _check(self, signed: SignedRequest, request: Request, federation: str) -> None:
        expected = (federation, request.client, request.ticket, request.level, request.commitment)
        if (signed.federation, signed.client, signed.ticket, signed.level, signed.commitment) != expected:
            raise DataError(
                "the signed request is another one: store, client, ticket, level and commitment must be the same."
            )
        self.keys.check(signed.client, signed.key)

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


class Lapses:
    """Finds requests that nobody follows up: the client's shard is erased, which settles them.

    A request withdraws the model from everybody until the client sends its shard without the rows. A client that never
    does so would keep it withdrawn indefinitely. So it may be silent for some hours. Erasing the whole shard is more
    than the client asked for, but honours the request; it can send its surviving rows later.
    """

    def __init__(self, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._hours, self._terms = hours, Expiry(hours, clock)

    def expire(self, store: ServerStore, before: Callable[[str], None] = lambda _: None) -> None:
        """Erase the shards of clients that asked to forget and were silent for too long.

        ``before`` is called with each client's name before its shard is erased.
        """
        if not store.waiting():  # looked at several times a second, mostly in vain
            self._terms.over({})
            return
        # read before the tickets: a shard that arrives in between may answer one of them, and must not be erased
        held = {shard.client: shard.file for shard in store.shards()}
        clients, ends = dict[str, str](), dict[str, float]()
        for ticket in store.waiting():
            if ticket.state == "accepted":
                clients[ticket.id] = ticket.client
                ends[ticket.id] = datetime.fromisoformat(ticket.received).timestamp() + self._hours * 3600.0
        for client in sorted({clients[ticket] for ticket in self._terms.over(ends)}):
            _log.warning("client %r asked to forget and sent nothing since: its shard is erased", client)
            before(client)
            exclusion.lapse(store, client, file=held.get(client, ""))


def due(ticket: Ticket, record: RequestRecord | None, days: float) -> datetime:
    """Return the time by which a request must be settled: days after it was received, however late it was accepted."""
    return datetime.fromisoformat(record.received if record else ticket.received) + timedelta(days=days)


def stages(store: ServerStore, ticket: Ticket, record: RequestRecord | None) -> dict[Stage, str]:
    """Return the stages that a request has reached, in order, with their times.

    A request that did not come over the network has no record.
    """
    reached: dict[Stage, str] = {"received": record.received if record else ticket.received}
    reached["accepted"] = ticket.received
    if ticket.erased:
        reached["erased"] = ticket.erased
    if ticket.settled:
        reached["retrained" if ticket.erased else "settled"] = ticket.settled
        path = kept_at(store, ticket.id)
        if path.exists():
            reached["certified"] = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    return reached


def certified(store: ServerStore, records: RequestRecords, ticket: str, *, days: float) -> dict[str, Any]:
    """Return the certificate of a settled request, with the client's signed request, and its deadline in days."""
    record = records.find(ticket)
    until, signed = due(store.ticket(ticket), record, days), record.signed if record else None
    return certify(store, ticket, Keyring.of(store).key(), due=until, request=signed)


def _record(row: Any) -> RequestRecord:
    signed = json.loads(row["signed"]) if row["signed"] else None
    request = Request(row["ticket"], row["client"], row["level"], row["commitment"])
    return RequestRecord(request, row["received"], signed)
