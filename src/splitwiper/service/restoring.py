"""Restore a store from a backup: run by the operator once the backup is in place, before the server is started."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

from splitwiper.errors import NotFoundError
from splitwiper.service.certificate.restoring import Restored, record
from splitwiper.service.shared_book import service_book
from splitwiper.service.witnesses import Witnesses
from splitwiper.store import ServerTree


def restore(root: Path, reason: str) -> Restored:
    """Put on record that a store is a backup, so that sites which know a longer ledger can accept it.

    Raises:
        NotFoundError: there is no store.
        BusyError: a server runs on it.
    """
    if not (root / "server.db").exists():
        raise NotFoundError(f"there is no server's store in {root}: put the backup there first.")
    tree = ServerTree(root)
    with closing(tree.book), closing(service_book(root)) as book, ExitStack() as held:
        if book.path.exists():
            held.enter_context(book.lease("restoring"))
        held.enter_context(tree.book.lease("restoring"))
        made = record(tree, reason)
        if book.path.exists():
            Witnesses(book).forget_after(made.size)
    return made
