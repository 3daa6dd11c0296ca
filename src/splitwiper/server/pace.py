"""How often one client may make training start over while others wait for the model."""

from __future__ import annotations

from splitwiper.errors import BusyError, QuotaError
from splitwiper.server.limits import Limits
from splitwiper.store import ServerTree, exclusion, ledger
from splitwiper.wire import Statement


def answers(tree: ServerTree, client: str, statement: Statement) -> bool:
    """Whether a shard answers an open request of its client."""
    return any(
        one.client == client and one.id in statement.tickets and one.state == "accepted" for one in tree.waiting()
    )


def is_used_up(tree: ServerTree, client: str, limits: Limits) -> bool:
    """Whether a client has sent as many shards since the last model as it may while others wait for the next."""
    sent = ledger.shards_since_model(tree.book.db)
    others = {one.client for one in tree.waiting() if one.state == "erased"} | sent.keys()
    return bool(others - {client}) and sent[client] >= limits.shards


def check_pace(tree: ServerTree, client: str, statement: Statement, limits: Limits) -> None:
    """Refuse shard after shard of one client while others wait: each makes the training under way start over.

    One that answers a request may always be sent; `put_off` has what becomes of it.

    Raises:
        QuotaError: the client has sent shards again and again while others wait.
        BusyError: the shard is to answer requests that were answered by erasing the one before it.
    """
    if answers(tree, client, statement):
        return
    if exclusion.taken_away(tree, client) is not None and statement.tickets:
        # taken, it would pass for the answer, and the certificate says that nothing was left
        erased = {one.id for one in tree.tickets(client) if one.erased}
        if not erased.isdisjoint(statement.tickets):
            raise BusyError(
                f"the shard of client {client!r} was erased, and its requests were settled by that: look at its "
                "standing, and send the shard as one that answers no request. 'splitwiper forget' does so when it is "
                "run again."
            )
    if is_used_up(tree, client, limits):
        raise QuotaError(
            f"client {client!r} has sent {limits.shards} shards while others wait for the model, which is all "
            "that is taken until it is trained: send it again then."
        )


def put_off(tree: ServerTree, client: str, limits: Limits) -> None:
    """Honour a request whose shard would make training start over once too often, if it would, by erasing.

    The shard before it goes, which is more than was asked for and makes training start over one last time: nothing is
    left to be erased after it. The new one can be sent once the model is trained.

    Raises:
        QuotaError: so it was.
    """
    if not is_used_up(tree, client, limits):
        return
    exclusion.put_off(tree, client)
    raise QuotaError(
        f"client {client!r} has sent {limits.shards} shards while others wait for the model. What it asked to forget "
        "is forgotten: its shard was erased, and its requests are settled when the model is trained. Send the shard "
        "again then ('splitwiper forget' goes on by itself); what arrived is kept until then."
    )
