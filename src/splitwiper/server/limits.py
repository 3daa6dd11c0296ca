"""Limits on what a server accepts from one client, so that no client can stop the others.

`ShardLimits` bounds what a shard may hold; `check_pace` and `put_off` how often a client may make training start over.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from splitwiper.errors import BusyError, DataError, QuotaError
from splitwiper.store import ServerStore, exclusion, ledger
from splitwiper.wire import Label, Shard, Statement
from splitwiper.wire.codecs import LARGEST


@dataclass(frozen=True)
class ShardLimits:
    """Bounds on shards. In one process, where clients have one owner, they are as wide as the format allows.

    Attributes:
        largest_value: the largest absolute value of an activation.
        outputs: outputs of the model: labels over all shards, or codes if labels are hidden.
        labels: labels of one client.
        label_length: characters of a label's task and name together.
        shard_rows: rows of one client: training keeps their order in memory, whatever a row's size.
        shards: how many shards one client may send while others wait for the model.
    """

    largest_value: float = LARGEST
    outputs: int = 1 << 20
    labels: int = 1 << 20
    label_length: int = 2000
    shards: int = 1 << 62
    shard_rows: int = 1 << 62

    def check_statement(self, client: str, statement: Statement) -> None:
        """Refuse more codes than the model may have outputs."""
        if statement.outputs > self.outputs:
            raise DataError(
                f"client {client!r} has a codebook of {statement.outputs} codes, and a model has at most "
                f"{self.outputs} outputs here: agree on fewer codes, or have the operator raise 'outputs'."
            )

    def check_rows(self, client: str, shard: Shard) -> None:
        """Refuse more rows than a client may have."""
        if shard.rows > self.shard_rows:
            raise DataError(
                f"client {client!r} has {shard.rows:,} rows, and {self.shard_rows:,} of one client are accepted here: "
                "leave some out, or have the operator raise 'shard_rows'."
            )

    def check_labels(self, client: str, shard: Shard, others: AbstractSet[Label]) -> None:
        """Refuse more labels than a client, or the federation with the others' labels, may have; and long names."""
        longest = max((len(label.task) + len(str(label.name)) for label in shard.labels), default=0)
        if longest > self.label_length:
            raise DataError(
                f"client {client!r} has a label of {longest} characters, and {self.label_length} are accepted "
                "here: shorten it, or have the operator raise 'label_length'."
            )
        if len(shard.labels) > self.labels:
            raise DataError(
                f"client {client!r} has {len(shard.labels)} labels, and {self.labels} of one client are accepted here: "
                "merge some, or have the operator raise 'labels'."
            )
        together = others | set(shard.labels)
        if len(together) > self.outputs:
            raise DataError(
                f"with the {len(shard.labels)} labels of client {client!r} the federation would have "
                f"{len(together)}, and a model has at most {self.outputs} outputs here: merge some, "
                "or have the operator raise 'outputs'."
            )


# --- pace ----------------------------------------------------------------------------------------------------


def answers_request(store: ServerStore, client: str, statement: Statement) -> bool:
    """Return whether a shard answers an open request of its client."""
    for ticket in store.waiting():
        if ticket.client == client and ticket.id in statement.tickets and ticket.state == "accepted":
            return True
    return False


def is_used_up(store: ServerStore, client: str, limits: ShardLimits) -> bool:
    """Return whether a client has sent as many shards since the last model as it may while others wait."""
    with store.database.reading() as db:
        sent = ledger.shards_since_model(db)
    # whoever waits for the next model: those who asked to forget, and those whose new shards it is to know
    others = {ticket.client for ticket in store.waiting() if ticket.state == "erased"} | sent.keys()
    return bool(others - {client}) and sent[client] >= limits.shards


def check_pace(store: ServerStore, client: str, statement: Statement, limits: ShardLimits) -> None:
    """Refuse repeated shards of one client while others wait: each makes the training under way start over.

    A shard that answers a request may always be sent; `put_off` says what becomes of it. One that is to answer requests
    which were already answered by erasing the previous shard is refused with a `BusyError`.
    """
    if answers_request(store, client, statement):
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
            f"client {client!r} has sent {limits.shards} shards while others wait for the model, and no "
            "more are accepted until the model is trained: send this one again then."
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
