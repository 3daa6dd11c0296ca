"""Recomputing by whoever has the folder: a site its half and shard, an operator the server half. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from splitwiper.client import Client
from splitwiper.config import Config, from_dict, read_toml
from splitwiper.errors import FormatError, NotFoundError, SealError, StoreError
from splitwiper.federation import Verification
from splitwiper.federation.build import build_halves
from splitwiper.federation.history import Altered, check_history
from splitwiper.federation.verify import Check, verify_client, verify_gone, verify_server
from splitwiper.server import Server
from splitwiper.service.certificate import Envelope
from splitwiper.service.certificate.structure import parse
from splitwiper.service.home import Home
from splitwiper.service.storing import MODEL, Architecture
from splitwiper.store import ServerTree
from splitwiper.wire import Link, Receipt, Ticket


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
    """
    known = home.client
    tree = known.tree
    client = Client(tree, home.halves.client, home.columns(), cast("Link", _Offline(home)))
    checks = [_sealed(f"site {known.name}", tree.book.check)]
    if checks[0].outcome == "exact":
        asked = {row["ticket"]: row["commitment"] for row in tree.requests("open", "sent", "done")}
        asked |= _certified(home)
        if receipt is not None:
            asked = {receipt.ticket: receipt.commitment}
        accepted = tree.book.meta("accepted") or None
        for check in (lambda: verify_gone(client, asked), lambda: verify_client(client, accepted)):
            checks.append(_guarded(f"site {known.name}", check))
            if checks[-1].outcome != "exact":
                break
    return Verification.of(checks)


def _certified(home: Home) -> dict[str, str]:
    """What the server's certificates say that requests committed to, by ticket."""
    found = {}
    for path in sorted((home.client.tree.root / "certificates").glob("*.json")):
        try:
            said = parse(Envelope.load(path).payload)
        except FormatError:
            continue
        found[said["ticket"]] = said["commitment"]
    return found


def open_server(store: Path) -> Server:
    """Open a server's folder to recompute in it.

    Raises:
        NotFoundError: it is none, or was never served.
    """
    path = store / MODEL
    if not path.exists():
        raise NotFoundError(f"there is no {path}: serve the store once with this version, which writes it.")
    made = from_dict(Architecture, read_toml(path))
    return Server(ServerTree(store), build_halves(Config(seed=made.seed, model=made.model)).server)


def verify_store(store: Path, receipt: Receipt | None = None) -> Verification:
    """Check a server's records against its ledger, and recompute the server half from the shards that it holds.

    Args:
        store: the server's folder.
        receipt: one that must be among its own.
    """
    server = open_server(store)
    checks = [_sealed("server", server.tree.book.check)]
    if checks[0].outcome == "exact":
        checks.append(_history(server, receipt))
    if checks[-1].outcome == "exact":
        if server.tree.is_current():
            checks.append(_guarded("server", lambda: verify_server(server)))
        else:
            checks.append(Check("server", "state", "unverifiable", "training is under way: verify when it is done"))
    return Verification.of(checks)


def verify_both(store: Path, home: Home | None) -> Callable[[Receipt], Verification]:
    """Return what recomputes a receipt's server half, and with the site its half and shard too."""

    def verify(receipt: Receipt) -> Verification:
        checks = [*verify_store(store, receipt).checks]
        if home is not None:
            checks += verify_site(home, receipt).checks
        else:
            detail = f"the folder of {receipt.client} is not here: its shard is taken as the server holds it"
            checks.append(Check(f"site {receipt.client}", "state", "unverifiable", detail))
        return Verification.of(checks)

    return verify


def fingerprint_of(home: Home) -> Mapping[str, str]:
    """The numerics that a site's half was computed with."""
    half = home.client.tree.half()
    return half[1] if half else {}


def _history(server: Server, receipt: Receipt | None) -> Check:
    try:
        return Check("ledger", "history", "exact", check_history(server, {}, receipt))
    except Altered as problem:
        return Check("ledger", "history", "mismatch", str(problem))


def _sealed(what: str, check: Callable[[], None]) -> Check:
    """Whether records are as their owner left them."""
    try:
        check()
    except SealError as problem:
        return Check(what, "history", "unverifiable", str(problem))
    except StoreError as problem:
        return Check(what, "history", "mismatch", str(problem))
    return Check(what, "history", "exact", "its records are sealed, and as it left them")


def _guarded(what: str, check: Callable[[], Check]) -> Check:
    """A check; where it meets damaged files, that is what came out of it."""
    try:
        return check()
    except StoreError as problem:
        return Check(what, "state", "mismatch", str(problem))
