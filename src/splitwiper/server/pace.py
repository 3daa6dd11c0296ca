"""Limits how often one client may make training start over while others wait for the model."""

from __future__ import annotations

from splitwiper.errors import BusyError, QuotaError
from splitwiper.server.limits import ShardLimits
from splitwiper.store import ServerStore, exclusion, ledger
from splitwiper.wire import Statement


def answers(store: ServerStore, client: str, statement: Statement) -> bool:
    """Return whether a shard answers an open request of its client."""
    for ticket in store.waiting():
        if ticket.client == client and ticket.id in statement.tickets and ticket.state == "accepted":
            return True
    return False


def is_used_up(store: ServerStore, client: str, limits: ShardLimits) -> bool:
    """Return whether a client has sent as many shards since the last model as it may while others wait."""
    with store.database.reading() as db:
        sent = ledger.shards_since_model(db)
    others = {ticket.client for ticket in store.waiting() if ticket.state == "erased"} | sent.keys()
    return bool(others - {client}) and sent[client] >= limits.shards


def check_pace(store: ServerStore, client: str, statement: Statement, limits: ShardLimits) -> None:
    """Refuse repeated shards of one client while others wait: each makes the training under way start over.

    A shard that answers a request may always be sent; `put_off` says what becomes of it. One that is to answer requests
    which were already answered by erasing the previous shard is refused with a `BusyError`.
    """
    if answers(store, client, statement):
        return
    if exclusion.taken_away(store, client) is not None and statement.tickets:
        # if accepted, it would pass for the answer, while the certificate says that nothing was left
        erased = {ticket.id for ticket in store.tickets(client) if ticket.erased}
        if not erased.isdisjoint(statement.tickets):
            raise BusyError(
                f"the shard of client {client!r} was erased, and its requests were settled by that: look at its "
                "standing, and send the shard as one that answers no request. 'splitwiper forget' does so when it is "
                "run again."
            )
    if is_used_up(store, client, limits):
        raise QuotaError(
            f"client {client!r} has sent {limits.shards} shards while others wait for the model, which is all "
            "that is taken until it is trained: send it again then."
        )


def put_off(store: ServerStore, client: str, limits: ShardLimits) -> None:
    """Honour a request by erasing, if its new shard would make training start over once too often.

    The previous shard is erased, which is more than was requested and makes training start over one last time:
    nothing is left to be erased after it. The `QuotaError` that is then raised says so: the new shard can be sent once
    the model is trained.
    """
    if not is_used_up(store, client, limits):
        return
    why = "the client asked to forget, and may send its shard once the model is there"
    exclusion.set_aside(store, client, by="pace", why=why)
    raise QuotaError(
        f"client {client!r} has sent {limits.shards} shards while others wait for the model. What it asked to forget "
        "is forgotten: its shard was erased, and its requests are settled when the model is trained. Send the shard "
        "again then ('splitwiper forget' goes on by itself); what arrived is kept until then."
    )
