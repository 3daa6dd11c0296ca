"""Recomputing at a site: its half and shard, from its own rows. Nothing is changed, and the server is not asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from splitwiper.client import Client
from splitwiper.errors import FormatError
from splitwiper.federation import Verification
from splitwiper.federation.verify import Check, guarded, verify_client, verify_gone, verify_record
from splitwiper.service.certificate import Envelope
from splitwiper.service.certificate.structure import parse
from splitwiper.service.home.home import Home
from splitwiper.store import undisturbed
from splitwiper.wire import Link, Receipt, Request, Ticket


class _Offline:
    """A link to nowhere: the server is not asked, and the site's own book says what was requested."""

    travels = True

    def __init__(self, home: Home) -> None:
        self._home = home

    def tickets(self, client: str) -> tuple[Ticket, ...]:
        """Every request that the site made."""
        rows = self._home.client.tree.requests("open", "sent", "done")
        return tuple(Ticket(row["ticket"], client, row["level"], "settled", "") for row in rows)


def verify_site(home: Home, receipt: Receipt | None = None) -> Verification:
    """Recompute a site's half and shard from its surviving rows, and check that what it asked to forget is gone.

    The shard is compared with the one that the server acknowledged, by its digest in the site's own book.

    Args:
        home: the site. Its server is not asked.
        receipt: look at the request of this receipt alone; all of the site's unless given.

    Raises:
        BusyError: another process changed the site meanwhile, so that what was read does not fit together.
    """
    with undisturbed() as watch:
        watch.add(home.client.tree.book)
        return Verification.of(_checks(home, receipt))


def _checks(home: Home, receipt: Receipt | None) -> list[Check]:
    known = home.client
    tree = known.tree
    client = Client(tree, home.halves.client, home.columns(), cast("Link", _Offline(home)))
    checks = [verify_record(f"site {known.name}", tree.book.check)]
    if checks[0].outcome == "exact":
        asked = [
            Request(row["ticket"], known.name, row["level"], row["commitment"])
            for row in tree.requests("open", "sent", "done")
        ]
        asked += [certified for certified in _certified(home) if certified not in asked]
        if receipt is not None:
            asked = [Request(receipt.ticket, known.name, receipt.level, receipt.commitment)]
        accepted = tree.book.meta("accepted") or None
        for check in (lambda: verify_gone(client, asked), lambda: verify_client(client, accepted)):
            checks.append(guarded(f"site {known.name}", check))
            if checks[-1].outcome != "exact":
                break
    return checks


def _certified(home: Home) -> list[Request]:
    """Requests as the server's certificates have them."""
    found = []
    for path in sorted((home.client.tree.root / "certificates").glob("*.json")):
        try:
            said = parse(Envelope.load(path).payload)
        except FormatError:
            continue
        found.append(Request(said["ticket"], said["client"], said["level"], said["commitment"]))
    return found


def fingerprint_of(home: Home) -> Mapping[str, str]:
    """The numerics that a site's half was computed with."""
    half = home.client.tree.half()
    return half[1] if half else {}
