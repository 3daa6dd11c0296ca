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
from splitwiper.service.client_keys import ClientKeys
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
        """Store a countersigned head. Repeating it changes nothing.

        Args:
            store: the server's store.
            site: the name of the site that sends it.
            head: the head with the server's signature.
            countersignature: the site's countersignature.
            keys: the sites' registered keys.

        Raises:
            DataError: it is not a countersigned head, or belongs to another ledger.
            ForbiddenError: it is in another site's name, or was signed with another key.
        """
        try:
            found, said = read_countersigned(head, countersignature)
        except FormatError as problem:
            raise DataError(str(problem)) from problem
        key = keys.key(site)
        if said.site != site or (said.key != key and (keys.signed_only or key is not None)):
            raise ForbiddenError(f"{site!r} can countersign only in its own name, with the key that it has registered.")
        log, size = Log.begin(store), found.head.size
        ours = found.envelope.signers(Keyring.of(store).public()) and found.federation == store.federation
        if not ours or size > len(log.entries) or log.head(size) != found.head:
            raise DataError("this head is not one that this server signed for its ledger as it is now.")
        with self._database.change() as db:
            db.execute(
                "INSERT OR REPLACE INTO witnesses VALUES (?, ?, ?, ?, ?, ?)",
                (site, size, found.head.root, now(), json.dumps(head), json.dumps(countersignature)),
            )
            db.execute(
                "DELETE FROM witnesses WHERE site = ? AND rowid NOT IN "
                "(SELECT rowid FROM witnesses WHERE site = ? ORDER BY size DESC LIMIT ?)",
                (site, site, _KEPT),
            )

    def listed(self) -> list[Witness]:
        """Return the stored heads of all sites, newest first."""
        rows = self._database.read("SELECT * FROM witnesses ORDER BY size DESC, site")
        return [
            Witness(row["site"], row["received"], json.loads(row["head"]), json.loads(row["countersignature"]))
            for row in rows
        ]

    def forget_after(self, size: int) -> None:
        """Drop heads of more than ``size`` entries: the store was restored from a backup of that size."""
        with self._database.change() as db:
            db.execute("DELETE FROM witnesses WHERE size > ?", (size,))
