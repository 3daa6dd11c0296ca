"""Restoring a store from a backup: run by the operator after copying the backup, before starting the server."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

from splitwiper.errors import NotFoundError
from splitwiper.service.certificate.restoring import Restored, record
from splitwiper.service.database import service_database
from splitwiper.service.witnesses import Witnesses
from splitwiper.store import ServerStore


def restore(root: Path, reason: str) -> Restored:
    """Record that a store is a backup, so that sites that know a longer ledger can accept it.

    Raises:
        NotFoundError: there is no store.
        BusyError: a server is running on it.
    """
    if not (root / "server.db").exists():
        raise NotFoundError(f"there is no server's store in {root}: put the backup there first.")
    server_store = ServerStore(root)
    with closing(server_store.database), closing(service_database(root)) as database, ExitStack() as held:
        if database.path.exists():
            held.enter_context(database.lease("restoring"))
        held.enter_context(server_store.database.lease("restoring"))
        made = record(server_store, reason)
        if database.path.exists():
            Witnesses(database).forget_after(made.size)
    return made
