"""Signed requests as sites sent them, and the registered key of each site.

A request is stored here before the server acts on it. A site registers its key when it joins; a request, shard or
withdrawal in its name that is signed with another key is refused, whoever holds a certificate for that name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from splitwiper.errors import DataError, ForbiddenError, FormatError, NotFoundError
from splitwiper.seeding import digest
from splitwiper.service.certificate.site import Registration, ShardStatement, SignedRequest
from splitwiper.store.database import Database
from splitwiper.store.tickets import now
from splitwiper.wire import Request
from splitwiper.wire.messages import Level

SCHEMA = """
CREATE TABLE cases (
  ticket TEXT PRIMARY KEY, client TEXT NOT NULL, level TEXT NOT NULL, commitment TEXT NOT NULL,
  received TEXT NOT NULL, signed TEXT);
CREATE INDEX cases_by_client ON cases (client);
CREATE TABLE client_keys (
  client TEXT PRIMARY KEY, key TEXT NOT NULL, since TEXT NOT NULL, signed TEXT NOT NULL);
-- of the last statement about a shard that was accepted: its number, and a digest of it
CREATE TABLE serials (client TEXT PRIMARY KEY, serial INTEGER NOT NULL, newest TEXT NOT NULL);
CREATE TABLE dropped_keys (client TEXT NOT NULL, operator TEXT NOT NULL, reason TEXT NOT NULL, time TEXT NOT NULL);
"""


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
    """All request records, registered keys and serial numbers, in the service's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def receive(
        self, request: Request, signed: Mapping[str, Any] | None, *, federation: str, must: bool
    ) -> RequestRecord:
        """Store a request. Repeating it changes nothing.

        Args:
            request: the request.
            signed: the same, signed by the client.
            federation: the id of the server's store.
            must: refuse a request without a signature.

        Raises:
            DataError: it is not signed, or the signed request differs.
            ForbiddenError: it was not signed with the client's key.
        """
        if signed is None:
            if must:
                raise DataError(
                    "requests to forget must be signed by the client's own key: 'splitwiper forget' does that; see "
                    "the field 'signed' in the OpenAPI document."
                )
        else:
            try:
                made = SignedRequest.read(signed)
            except FormatError as problem:
                raise DataError(str(problem)) from problem
            self._check(made, request, federation)
        with self._database.change() as db:
            db.execute(
                "INSERT OR IGNORE INTO cases VALUES (?, ?, ?, ?, ?, ?)",
                (
                    request.ticket,
                    request.client,
                    request.level,
                    request.commitment,
                    now(),
                    json.dumps(signed) if signed else None,
                ),
            )
        found = self.find(request.ticket)
        if found is None or found.request != request:
            raise DataError(f"ticket {request.ticket!r} is another request's: draw another one.")
        return found

    def _check(self, made: SignedRequest, request: Request, federation: str) -> None:
        told = (made.federation, made.client, made.ticket, made.level, made.commitment)
        if told != (federation, request.client, request.ticket, request.level, request.commitment):
            raise DataError(
                "what is signed is not this request: store, client, ticket, level and commitment must be the same."
            )
        self.check_key(made.client, made.key)

    # --- keys ----------------------------------------------------------------------------------------------

    def register(self, made: Registration, signed: Mapping[str, Any]) -> None:
        """Store the key that a site registers. Registering the same one again changes nothing.

        Raises:
            ForbiddenError: another one is registered.
        """
        with self._database.change() as db:
            db.execute(
                "INSERT OR IGNORE INTO client_keys VALUES (?, ?, ?, ?)",
                (made.client, made.key, now(), json.dumps(signed)),
            )
        self.check_key(made.client, made.key)

    def check_key(self, client: str, key: str) -> None:
        """Refuse a key that is not the site's registered one.

        Raises:
            ForbiddenError: the site registered another key, or none.
        """
        known = self.key(client)
        if known is None:
            raise ForbiddenError(
                f"no key of {client!r} is registered here, so nothing can be signed in its name: 'splitwiper join' "
                "registers the site's key."
            )
        if known != key:
            raise ForbiddenError(
                f"{client!r} has registered another key than the one that signed this. Restore request-key.pem in the "
                "site's folder; or, if it is lost or somebody else registered first, have the operator drop the "
                "registered key, and join again."
            )

    def key(self, client: str) -> str | None:
        """Return a client's registered key, in hex; None if there is none."""
        row = self._database.one("SELECT key FROM client_keys WHERE client = ?", (client,))
        return None if row is None else str(row["key"])

    def registration(self, client: str) -> Mapping[str, Any] | None:
        """Return a site's signed registration; None if there is none."""
        row = self._database.one("SELECT signed FROM client_keys WHERE client = ?", (client,))
        return None if row is None else dict(json.loads(row["signed"]))

    def serial(self, client: str) -> int:
        """Return the serial number of the last accepted statement about a site's shard; 0 if there is none."""
        row = self._database.one("SELECT serial FROM serials WHERE client = ?", (client,))
        return 0 if row is None else int(row["serial"])

    def check_serial(self, made: ShardStatement) -> None:
        """Refuse a statement older than an accepted one. The newest may be repeated.

        Raises:
            DataError: it is older.
        """
        row = self._database.one("SELECT serial, newest FROM serials WHERE client = ?", (made.client,))
        if row is not None and made.serial <= row["serial"] and row["newest"] != _mark(made):
            raise DataError(
                f"this statement about a shard of {made.client!r} has number {made.serial}, and number {row['serial']} "
                "was accepted before: it is an old one that was sent again. Sign a new one, with a larger number."
            )

    def count(self, made: ShardStatement) -> None:
        """Record a statement as the newest, so that no earlier one is accepted any more.

        Raises:
            DataError: it is itself an old one.
        """
        with self._database.change() as db:
            self.check_serial(made)
            db.execute("INSERT OR REPLACE INTO serials VALUES (?, ?, ?)", (made.client, made.serial, _mark(made)))

    def void(self, client: str) -> None:
        """Refuse all statements accepted so far, even the newest: the shard was erased since."""
        with self._database.change() as db:
            db.execute("UPDATE serials SET newest = '' WHERE client = ?", (client,))

    def drop_key(self, client: str, operator: str, reason: str) -> None:
        """Delete a site's key, so that it can register another one. The operator and the reason are recorded.

        Raises:
            NotFoundError: it has none.
        """
        with self._database.change() as db:
            if not db.execute("DELETE FROM client_keys WHERE client = ?", (client,)).rowcount:
                raise NotFoundError(f"no key of client {client!r} is remembered.")
            db.execute("INSERT INTO dropped_keys VALUES (?, ?, ?, ?)", (client, operator, reason, now()))

    def find(self, ticket: str) -> RequestRecord | None:
        """Return the record of a request; None if there is none."""
        row = self._database.one("SELECT * FROM cases WHERE ticket = ?", (ticket,))
        return None if row is None else _case(row)

    def every(self) -> list[RequestRecord]:
        """Return all requests, oldest first."""
        return [_case(row) for row in self._database.read("SELECT * FROM cases ORDER BY rowid")]

    def of(self, client: str) -> dict[str, RequestRecord]:
        """Return a client's requests by ticket, oldest first."""
        rows = self._database.read("SELECT * FROM cases WHERE client = ? ORDER BY rowid", (client,))
        return {row["ticket"]: _case(row) for row in rows}


def _mark(made: ShardStatement) -> str:
    return digest("shard statement", json.dumps(asdict(made), sort_keys=True))


def _case(row: Any) -> RequestRecord:
    return RequestRecord(
        row["ticket"],
        row["client"],
        row["level"],
        row["commitment"],
        row["received"],
        json.loads(row["signed"]) if row["signed"] else None,
    )
