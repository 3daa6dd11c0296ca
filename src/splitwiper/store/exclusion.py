"""Shards that the server erases of its own accord, and clients that an operator evicts.

Such a shard is erased, not quarantined: nothing of it is then left to be forgotten, and its client can send rows again.
All of this is recorded in the ledger, and read from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splitwiper.errors import NotFoundError
from splitwiper.store import ledger
from splitwiper.store.server_store import ServerStore


def set_aside(store: ServerStore, client: str, *, by: str, why: str, file: str | None = None) -> None:
    """Erase a client's shard, which answers all its open requests; arguments are those of `ServerStore.withdraw`."""
    store.withdraw(client, None, answers=None, by=by, why=why, file=file)


def lapse(store: ServerStore, client: str, *, file: str) -> None:
    """Erase any shard of a client that requested forgetting and then fell silent, and record that it lapsed."""
    set_aside(store, client, by="lapse", why="the client asked to forget, and sent nothing since", file=file)
    with store.database.change() as db:
        if store.shard(client) is None:
            ledger.append(db, {"kind": "lapsed", "client": client})


def evict(store: ServerStore, client: str, operator: str) -> None:
    """Erase a client's shard on an operator's order, and accept no other from it. Repeating it changes nothing."""
    with store.database.change() as db:
        if not ledger.is_evicted(db, client):
            ledger.append(db, {"kind": "evicted", "client": client, "operator": operator})
    set_aside(store, client, by="operator", why="an operator evicted the client")


def admit(store: ServerStore, client: str, operator: str) -> None:
    """Accept shards of an evicted client again."""
    with store.database.change() as db:
        if not ledger.is_evicted(db, client):
            raise NotFoundError(f"client {client!r} is not evicted.")
        ledger.append(db, {"kind": "admitted", "client": client, "operator": operator})


def is_evicted(store: ServerStore, client: str) -> bool:
    """Return whether an operator evicted a client and did not admit it again."""
    with store.database.reading() as db:
        return ledger.is_evicted(db, client)


def taken_away(store: ServerStore, client: str) -> Mapping[str, Any] | None:
    """Return the ledger's entry about the server erasing a client's shard of its own accord.

    None if the server holds the client's shard, the client withdrew it itself, or it never sent one.
    """
    with store.database.reading() as db:
        entry = ledger.newest(db, client, ("shard", "withdrawn"))
    return entry if entry is not None and entry.get("by") else None
