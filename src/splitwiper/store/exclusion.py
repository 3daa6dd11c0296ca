"""Shards that are erased without their client's doing, and clients that an operator evicts.

Such a shard is erased, not kept apart: nothing of it is then left to be forgotten, and its client can send rows again.
All of it is in the ledger, and read from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splitwiper.errors import NotFoundError
from splitwiper.store import ledger
from splitwiper.store.server_tree import ServerTree


def set_aside(tree: ServerTree, client: str, *, by: str, why: str, file: str | None = None) -> None:
    """Erase a client's shard, and answer all its open requests by that.

    Args:
        tree: the server's.
        client: whose shard it is.
        by: one of `ledger.WITHDRAWERS`.
        why: the reason, for everybody who may read the ledger.
        file: the shard that is meant: one that the client sent meanwhile is kept. Empty where it had none.
    """
    tree.withdraw(client, None, answers=None, by=by, why=why, file=file)


def lapse(tree: ServerTree, client: str, *, file: str) -> None:
    """Erase the shard of a client that asked and then was silent, if it has one, and put on record that it lapsed."""
    set_aside(tree, client, by="lapse", why="the client asked to forget, and sent nothing since", file=file)
    with tree.book.change() as db:
        if tree.shard(client) is None:
            ledger.append(db, {"kind": "lapsed", "client": client})


def put_off(tree: ServerTree, client: str) -> None:
    """Erase the shard of a client that asked and whose new one has to wait until the model is trained."""
    set_aside(tree, client, by="pace", why="the client asked to forget, and may send its shard once the model is there")


def evict(tree: ServerTree, client: str, operator: str) -> None:
    """Erase a client's shard on an operator's word, and take no other one of it. Repeating it changes nothing."""
    with tree.book.change() as db:
        if not ledger.is_evicted(db, client):
            ledger.append(db, {"kind": "evicted", "client": client, "operator": operator})
    set_aside(tree, client, by="operator", why="an operator evicted the client")


def admit(tree: ServerTree, client: str, operator: str) -> None:
    """Take shards of an evicted client again.

    Raises:
        NotFoundError: it was not evicted.
    """
    with tree.book.change() as db:
        if not ledger.is_evicted(db, client):
            raise NotFoundError(f"client {client!r} is not evicted.")
        ledger.append(db, {"kind": "admitted", "client": client, "operator": operator})


def is_evicted(tree: ServerTree, client: str) -> bool:
    """Whether an operator evicted a client, and did not admit it again."""
    return ledger.is_evicted(tree.book.db, client)


def taken_away(tree: ServerTree, client: str) -> Mapping[str, Any] | None:
    """Return the ledger's entry by which a client's shard was erased without its doing.

    None where the client's shard is here, the client withdrew it itself, or never sent one.
    """
    entry = ledger.newest(tree.book.db, client, ("shard", "withdrawn"))
    return entry if entry is not None and entry.get("by") else None
