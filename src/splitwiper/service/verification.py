"""Recomputing from a server's folder: its records and the server half. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from splitwiper.checks import Check, Verification, run_check
from splitwiper.config import Config, from_dict, read_toml
from splitwiper.errors import NotFoundError
from splitwiper.federation.build import build_halves
from splitwiper.federation.history import check_history
from splitwiper.federation.verify import verify_record, verify_server
from splitwiper.server import Server
from splitwiper.service.storing import MODEL, Architecture
from splitwiper.store import ServerStore, databases_unchanged
from splitwiper.wire import Receipt


def open_server(store: Path) -> Server:
    """Open a server's folder to recompute in it.

    Raises:
        NotFoundError: it is not a server's folder, or was never served.
    """
    path = store / MODEL
    if not path.exists():
        raise NotFoundError(f"there is no {path}: serve the store once with this version, which writes it.")
    architecture = from_dict(Architecture, read_toml(path))
    halves = build_halves(Config(seed=architecture.seed, model=architecture.model))
    return Server(ServerStore(store), halves.server)


def verify_store(store: Path, receipt: Receipt | None = None) -> Verification:
    """Check a server's records against its ledger, and recompute the server half from the shards that it holds.

    A receipt, if given, must be among the server's own.

    Raises:
        BusyError: the store was changed meanwhile, so that the data read is inconsistent.
    """
    server = open_server(store)
    with databases_unchanged() as watch:
        watch.add(server.store.database)
        checks = [verify_record("server", server.store.database.check)]
        # what is read below relies on records that are whole
        if checks[0].outcome == "exact":
            checks.append(run_check("ledger", partial(check_history, server, {}, receipt), "history"))
        if checks[-1].outcome == "exact":
            if server.store.is_current():
                checks.append(run_check("server", partial(verify_server, server), "state"))
            else:
                checks.append(Check("server", "unverifiable", "training is under way: verify when it is done", "state"))
    return Verification(tuple(checks))


def verify_both(store: Path, site: Callable[[Receipt], Verification] | None) -> Callable[[Receipt], Verification]:
    """Return a function that recomputes a receipt's server half and, if its requester's site is here, shard and half.

    ``site`` recomputes at the requester's site; it is None if that is not here.
    """

    def verify(receipt: Receipt) -> Verification:
        of_store = verify_store(store, receipt).checks
        if site is not None:
            return Verification(of_store + site(receipt).checks)
        detail = f"the folder of {receipt.client} is not here: its shard was not recomputed"
        return Verification((*of_store, Check(f"site {receipt.client}", "unverifiable", detail, "state")))

    return verify
