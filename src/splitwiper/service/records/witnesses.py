"""Countersigned heads of sites, stored and relayed: the newest few of each site.

The server accepts only heads that it signed and that belong to its own ledger. It cannot forge a countersignature, but
nobody can check that it hands out all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from splitwiper.errors import DataError, ForbiddenError, FormatError
from splitwiper.service.certificate import Keyring, Log
from splitwiper.service.certificate.heads import read_countersigned
from splitwiper.service.records.client_keys import ClientKeys
from splitwiper.store import ServerStore
from splitwiper.store.database import Database
from splitwiper.store.tickets import now

_SCHEMA = """CREATE TABLE IF NOT EXISTS witnesses (
  site TEXT NOT NULL, size INTEGER NOT NULL, root TEXT NOT NULL, received TEXT NOT NULL, head TEXT NOT NULL,
  countersignature TEXT NOT NULL, PRIMARY KEY (site, size, root))"""
_KEPT = 4
"""The number of countersigned heads kept for each site."""


@dataclass(frozen=True)
class Witness:
    """A countersigned head as it is relayed."""

    site: str
    received: str
    head: Mapping[str, Any]
    countersignature: Mapping[str, Any]


class Witnesses:
    """Countersigned heads in the service's database. An older database gets the table when it is first opened."""

    def __init__(self, database: Database) -> None:
        self._database = database
        if database.one("SELECT 1 FROM sqlite_master WHERE name = 'witnesses'") is None:
            with database.change() as db:
                db.execute(_SCHEMA)

    def add(
        self,
        store: ServerStore,
        site: str,
        head: Mapping[str, Any],
        countersignature: Mapping[str, Any],
        *,
        keys: ClientKeys,
    ) -> None:
        """Store a head that the server signed and a site countersigned. Repeating it changes nothing.

        Raises:
            DataError: it is not a countersigned head, or belongs to another ledger.
            ForbiddenError: it is in another site's name, or was signed with another key.
        """
        try:
            signed, witness = read_countersigned(head, countersignature)
        except FormatError as problem:
            raise DataError(str(problem)) from problem
        key = keys.key(site)
        if witness.site != site or (witness.key != key and (keys.signed_only or key is not None)):
            raise ForbiddenError(f"{site!r} can countersign only in its own name, with the key that it has registered.")
        log, size = Log.begin(store), signed.head.size
        ours = signed.envelope.signers(Keyring.of(store).public()) and signed.federation == store.federation
        if not ours or size > len(log.entries) or log.head(size) != signed.head:
            raise DataError("this head is not one that this server signed for its ledger as it is now.")
        with self._database.change() as db:
            db.execute(
                "INSERT OR REPLACE INTO witnesses VALUES (?, ?, ?, ?, ?, ?)",
                (site, size, signed.head.root, now(), json.dumps(head), json.dumps(countersignature)),
            )
            db.execute(
                "DELETE FROM witnesses WHERE site = :site AND rowid NOT IN "
                "(SELECT rowid FROM witnesses WHERE site = :site ORDER BY size DESC LIMIT :kept)",
                {"site": site, "kept": _KEPT},
            )

    def listed(self) -> list[Witness]:
        """Return the stored heads of all sites, newest first."""
        witnesses: list[Witness] = []
        for row in self._database.read("SELECT * FROM witnesses ORDER BY size DESC, site"):
            head, countersignature = json.loads(row["head"]), json.loads(row["countersignature"])
            witnesses.append(Witness(row["site"], row["received"], head, countersignature))
        return witnesses

    def forget_after(self, size: int) -> None:
        """Drop heads of more than ``size`` entries: the store was restored from a backup of that size."""
        with self._database.change() as db:
            db.execute("DELETE FROM witnesses WHERE size > ?", (size,))
