"""The registered key of each site, and checks of what sites sign with it, before the server acts on it.

A site registers its key when it joins. A request, shard or withdrawal in its name that is signed with another key is
refused, whoever holds a certificate for that name. Statements about shards are numbered, so that an old one cannot be
sent again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from splitwiper.errors import DataError, ForbiddenError, FormatError, NotFoundError
from splitwiper.seeding import digest
from splitwiper.service.certificate.signed import Registration, ShardStatement, SignedMessage
from splitwiper.store import ServerStore
from splitwiper.store.database import Database
from splitwiper.store.tickets import now
from splitwiper.wire import Statement
from splitwiper.wire.commitments import shard_commitment

SCHEMA = """
CREATE TABLE client_keys (
  client TEXT PRIMARY KEY, key TEXT NOT NULL, since TEXT NOT NULL, signed TEXT NOT NULL);
-- of the last statement about a shard that was accepted: its number, and a digest of it
CREATE TABLE serials (client TEXT PRIMARY KEY, serial INTEGER NOT NULL, newest TEXT NOT NULL);
CREATE TABLE dropped_keys (client TEXT NOT NULL, operator TEXT NOT NULL, reason TEXT NOT NULL, time TEXT NOT NULL);
"""
_Message = TypeVar("_Message", bound=SignedMessage)


def read_signed(kind: type[_Message], signed: Mapping[str, Any]) -> _Message:
    """Return a message that a caller sent; raise `DataError` if it is none, or its signature is wrong."""
    try:
        return kind.read(signed)
    except FormatError as problem:
        raise DataError(str(problem)) from problem


class ClientKeys:
    """Registered keys, and the serial numbers of the last statements about shards, in the service's database.

    With ``signed_only``, what is not signed with a registered key is refused.
    """

    def __init__(self, database: Database, *, signed_only: bool = True) -> None:
        self._database, self.signed_only = database, signed_only

    def register(self, store: ServerStore, client: str, signed: Mapping[str, Any]) -> None:
        """Register the key that a site signs with. Registering it again changes nothing.

        Raises:
            DataError: it is not a registration, or is for another store or another client.
            ForbiddenError: another key is registered.
        """
        registration = read_signed(Registration, signed)
        _check_place(store, client, registration.federation, registration.client)
        if self.key(client) is not None:
            self.check(client, registration.key)
        # the ledger first: a key that signs must be on record before anything signed with it
        store.register_key(client, registration.key)
        self.keep(registration, signed)

    def keep(self, registration: Registration, signed: Mapping[str, Any]) -> None:
        """Store the key that a site registers, unless it has one; refuse another key than that."""
        row = (registration.client, registration.key, now(), json.dumps(signed))
        with self._database.change() as db:
            db.execute("INSERT OR IGNORE INTO client_keys VALUES (?, ?, ?, ?)", row)
        self.check(registration.client, registration.key)

    def key(self, client: str) -> str | None:
        """Return a client's registered key, in hex; None if there is none."""
        row = self._database.one("SELECT key FROM client_keys WHERE client = ?", (client,))
        return None if row is None else str(row["key"])

    def check(self, client: str, key: str) -> None:
        """Refuse a key that is not the site's registered one."""
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

    def drop(self, client: str, operator: str, reason: str) -> None:
        """Delete a site's key, so that it can register another one. The operator and the reason are recorded.

        Raises:
            NotFoundError: it has none.
        """
        with self._database.change() as db:
            if not db.execute("DELETE FROM client_keys WHERE client = ?", (client,)).rowcount:
                raise NotFoundError(f"client {client!r} has no registered key.")
            db.execute("INSERT INTO dropped_keys VALUES (?, ?, ?, ?)", (client, operator, reason, now()))

    def check_shard(
        self, store: ServerStore, client: str, signed: Mapping[str, Any] | None, statement: Statement
    ) -> ShardStatement | None:
        """Check a site's signed statement about a shard, or its withdrawal, against what the upload says.

        Returns:
            The signed statement; None if there is none and none is required. The caller must still compare its digest
            with the shard's bytes.

        Raises:
            DataError: the signature is missing, or the signed statement differs.
            ForbiddenError: it was not signed with the site's key.
        """
        if signed is None:
            if self.signed_only:
                raise DataError(
                    "a shard must be signed by the site's own key, and so must a withdrawal: 'splitwiper join' and "
                    "'forget' do that; see the field 'signed' in the OpenAPI document."
                )
            return None
        own = read_signed(ShardStatement, signed)
        _check_place(store, client, own.federation, own.client)
        # the digest is not known to be the file's yet; the commitment ties it to the salt that the upload named
        committed = shard_commitment(bytes.fromhex(statement.salt), own.digest) if own.digest else ""
        sent = (statement.codebook, statement.outputs, statement.tickets, committed)
        if (own.codebook, own.outputs, own.tickets, own.commitment) != sent:
            raise DataError(
                "the signed statement differs from the one sent with the shard: codebook, tickets or commitment."
            )
        self.check(client, own.key)
        self.check_serial(own)
        return own

    def serial(self, client: str) -> int:
        """Return the serial number of the last accepted statement about a site's shard; 0 if there is none."""
        row = self._database.one("SELECT serial FROM serials WHERE client = ?", (client,))
        return 0 if row is None else int(row["serial"])

    def check_serial(self, signed: ShardStatement) -> None:
        """Refuse a statement older than an accepted one. The newest may be repeated."""
        row = self._database.one("SELECT serial, newest FROM serials WHERE client = ?", (signed.client,))
        if row is not None and signed.serial <= row["serial"] and row["newest"] != _mark(signed):
            raise DataError(
                f"this statement about a shard of {signed.client!r} has number {signed.serial}, and number "
                f"{row['serial']} was accepted before: it is an old one that was sent again. Sign a new one, with a "
                "larger number."
            )

    def count(self, signed: ShardStatement) -> None:
        """Record a statement as the newest, so that no earlier one is accepted any more; refuse it if it is older."""
        with self._database.change() as db:
            # checked in the transaction: two uploads that finish together must not both count
            self.check_serial(signed)
            db.execute("INSERT OR REPLACE INTO serials VALUES (?, ?, ?)", (signed.client, signed.serial, _mark(signed)))

    def void(self, client: str) -> None:
        """Refuse all statements accepted so far, even the newest: the shard was erased since."""
        with self._database.change() as db:
            db.execute("UPDATE serials SET newest = '' WHERE client = ?", (client,))


def _check_place(store: ServerStore, client: str, federation: str, name: str) -> None:
    """Refuse what was signed for another store, or in another name."""
    if (federation, name) != (store.federation, client):
        raise DataError(
            f"the signed message is for client {name!r} of store {federation[:16]!r}; this is store "
            f"{store.federation[:16]!r}, and the certificate or token says {client!r}. The name in the site's file "
            "must be the one in its certificate."
        )


def _mark(signed: ShardStatement) -> str:
    return digest("shard statement", json.dumps(asdict(signed), sort_keys=True))
