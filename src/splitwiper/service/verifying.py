"""Recomputing by an operator, who has the server's folder: its records and the server half. Nothing is changed."""

from __future__ import annotations

from pathlib import Path

from splitwiper.config import Config, from_dict, read_toml
from splitwiper.errors import NotFoundError
from splitwiper.federation import Verification
from splitwiper.federation.build import build_halves
from splitwiper.federation.verify import Check, guarded, verify_history, verify_record, verify_server
from splitwiper.server import Server
from splitwiper.service.storing import MODEL
from splitwiper.store import ServerTree
from splitwiper.wire import Receipt


def open_server(store: Path) -> Server:
    """Open a server's folder to recompute in it.

    Raises:
        NotFoundError: it is none, or was never served.
    """
    path = store / MODEL
    if not path.exists():
        raise NotFoundError(f"there is no {path}: serve the store once with this version, which writes it.")
    tree = ServerTree(store)
    model = from_dict(Config, read_toml(path)).model
    halves = build_halves(Config(seed=int(tree.book.meta("seed") or 0), model=model))
    return Server(tree, halves.server)


def verify_store(store: Path, receipt: Receipt | None = None) -> Verification:
    """Check a server's records against its ledger, and recompute the server half from the shards that it holds.

    Args:
        store: the server's folder.
        receipt: one that must be among its own.
    """
    server = open_server(store)
    checks = [verify_record("server", server.tree.book.check)]
    if checks[0].outcome == "exact":
        checks.append(verify_history(server, {}, receipt))
    if checks[-1].outcome == "exact":
        if server.tree.is_current():
            checks.append(guarded("server", lambda: verify_server(server)))
        else:
            checks.append(Check("server", "state", "unverifiable", "training is under way: verify when it is done"))
    return Verification.of(checks)
