"""Countersigned heads of sites, kept and relayed: the newest few of each site.

The server takes only heads that it signed and that are of its own ledger. It cannot make a countersignature; that it
hands out all of them, nobody can check.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from splitwiper.errors import DataError, ForbiddenError, FormatError
from splitwiper.service.certificate import Keyring, Log
from splitwiper.service.certificate.countersigning import read_countersigned
from splitwiper.store import ServerTree
from splitwiper.store.book import Book
from splitwiper.store.tickets import now

_SCHEMA = """CREATE TABLE IF NOT EXISTS witnesses (
  site TEXT NOT NULL, size INTEGER NOT NULL, root TEXT NOT NULL, received TEXT NOT NULL, head TEXT NOT NULL,
  countersignature TEXT NOT NULL, PRIMARY KEY (site, size, root))"""
_KEPT = 4
"""Countersigned heads of one site that are kept."""


@dataclass(frozen=True)
class Witness:
    """A countersigned head as it is relayed."""

    site: str
    received: str
    head: Mapping[str, Any]
    countersignature: Mapping[str, Any]


class Witnesses:
    """All of them, in the service's book. An older book gets the table when it is first opened."""

    def __init__(self, book: Book) -> None:
        self._book = book
        if book.one("SELECT 1 FROM sqlite_master WHERE name = 'witnesses'") is None:
            with book.change() as db:
                db.execute(_SCHEMA)

    def add(
        self,
        tree: ServerTree,
        site: str,
        head: Mapping[str, Any],
        countersignature: Mapping[str, Any],
        *,
        key: str | None,
        must: bool,
    ) -> None:
        """Keep a countersigned head. Repeating it changes nothing.

        Args:
            tree: the server's.
            site: who sends it.
            head: as the server signed it.
            countersignature: the site's.
            key: what this site has registered to sign with, if it has.
            must: refuse it where the site has registered no key.

        Raises:
            DataError: it is not a countersigned head, or of another ledger.
            ForbiddenError: it is in another site's name, or another key signed it.
        """
        try:
            found, said = read_countersigned(head, countersignature)
        except FormatError as problem:
            raise DataError(str(problem)) from problem
        if said.site != site or (said.key != key and (must or key is not None)):
            raise ForbiddenError(
                f"{site!r} can countersign in its own name alone, with the key that it has registered."
            )
        log, size = Log.begin(tree), found.head.size
        ours = bool(found.envelope.signers(Keyring.of(tree).public())) and found.federation == tree.book.meta("run")
        if not ours or size > len(log.entries) or log.head(size) != found.head:
            raise DataError("this head is not one that this server signed for its ledger as it is now.")
        with self._book.change() as db:
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
        """Return what is kept of all sites, the newest first."""
        rows = self._book.read("SELECT * FROM witnesses ORDER BY size DESC, site")
        return [
            Witness(row["site"], row["received"], json.loads(row["head"]), json.loads(row["countersignature"]))
            for row in rows
        ]

    def forget_after(self, size: int) -> None:
        """Drop heads of a longer ledger than this: the store was restored from a backup that had so many entries."""
        with self._book.change() as db:
            db.execute("DELETE FROM witnesses WHERE size > ?", (size,))
