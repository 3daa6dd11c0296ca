"""Check that a server's records follow from its ledger, and its ledger from the heads that others remember.

The ledger records in order what was created, requested, sent, trained and settled. Replayed from its first entry, it
gives the tickets, receipts, shards and model that there must be now; records that differ were changed by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from splitwiper.checks import CheckFailed
from splitwiper.config import config_digest
from splitwiper.errors import CorruptError, NotFoundError, StoreError
from splitwiper.formats import counted
from splitwiper.seeding import mac
from splitwiper.server import Server
from splitwiper.store import ServerStore, ledger, tickets
from splitwiper.store.ledger import START, Head
from splitwiper.store.replay import Replay
from splitwiper.wire import Receipt
from splitwiper.wire.commitments import shard_commitment

_REQUESTED = ("client", "level", "commitment")
"""What a ticket, its receipt and the ledger's entry must agree in."""


def check_history(server: Server, heads: Mapping[str, Head], receipt: Receipt | None = None) -> str:
    """Check that the ledger only grew, and that the server's records are those it leads to.

    ``heads`` are ledger heads by the party that remembers them; a receipt must be one of the server's own.

    Returns:
        A sentence: what was found to be so.

    Raises:
        CheckFailed: the records are not those that the ledger leads to.
    """
    store = server.store
    try:
        entries = ledger.entries(store.database)
        played = Replay()
        for entry in entries:
            played.add(entry)
        _check_heads(entries, heads)
        _check_made(server, played)
        _check_tickets(store, played)
        _check_shards(store, played)
        _check_model(store, played)
        if receipt is not None:
            _check_receipt(played, receipt)
    except (CorruptError, NotFoundError) as problem:
        raise CheckFailed(problem) from problem
    except (StoreError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as problem:  # wrong shape
        raise CheckFailed(f"a record cannot be read: {problem}") from problem
    seen = f", and grew from the heads that were seen by {', '.join(sorted(heads))}" if heads else ""
    lead = f"{counted(len(entries), 'entry leads', 'entries lead')}"
    return f"{lead} to these tickets, receipts, shards and model{seen}"


def _check_heads(entries: Sequence[Mapping[str, Any]], heads: Mapping[str, Head]) -> None:
    for who, head in heads.items():
        if head.size > len(entries):
            raise CheckFailed(
                f"the ledger was rolled back: it has {len(entries)} entries, and had {head.size} when {who} last saw it"
            )
        if (entries[head.size - 1]["hash"] if head.size else START) != head.hash:
            raise CheckFailed(f"the ledger was rewritten: entry {head.size} is not the one that {who} saw")


def _check_made(server: Server, played: Replay) -> None:
    database = server.store.database
    if not played.made or any(database.meta(key) != value for key, value in played.made.items()):
        raise CheckFailed("settings, model or first weights are not those the ledger says the run was made with")
    if server.network != database.meta("model"):
        raise CheckFailed("the server half here is another network: its code or constants differ")
    if config_digest(server.config, seed=server.seed) != database.meta("config"):
        raise CheckFailed("the server's config.toml is not what the run was made with")
    server.store.initial()
    server.store.client_initial()


def _check_tickets(store: ServerStore, played: Replay) -> None:
    known = {ticket.id: ticket for ticket in store.tickets()}
    if known.keys() != played.asked.keys():
        raise CheckFailed("the tickets are not the requests that the ledger has")
    for ticket in known.values():
        asked = played.asked[ticket.id]
        names = (*_REQUESTED, "received")
        if attrgetter(*names)(ticket) != itemgetter(*names)(asked):
            raise CheckFailed(f"ticket {ticket.id} is not the request that the ledger has")
        entry = played.settled.get(ticket.id)
        if (ticket.state == "settled") != (entry is not None):
            raise CheckFailed(f"ticket {ticket.id} is {ticket.state}, which is not what the ledger says")
        if entry is not None:
            kept = store.receipt(ticket.id)
            _check_receipt(played, kept)
            if kept.privacy:  # only clients add that, to their own copies
                raise CheckFailed(f"the receipt of ticket {ticket.id} was altered: a server knows nothing of noise")
            if kept.settled != ticket.settled:
                raise CheckFailed(f"ticket {ticket.id} was settled at another time than its receipt says")


def _check_receipt(played: Replay, receipt: Receipt) -> None:
    entry, asked = played.settled.get(receipt.ticket), played.asked.get(receipt.ticket)
    if entry is None or asked is None:
        raise CheckFailed(f"ticket {receipt.ticket} was never settled in this run")
    place = {"seq": entry["seq"], "hash": entry["hash"]}
    if entry["receipt"] != tickets.receipt_digest(receipt) or dict(receipt.ledger) != place:
        raise CheckFailed("the receipt is not the one the ledger recorded: it was altered")
    if receipt.context.get("server_model") != played.made["model"]:
        raise CheckFailed("the receipt is about another network: the model's code or constants differ")
    if attrgetter(*_REQUESTED)(receipt) != itemgetter(*_REQUESTED)(asked):
        raise CheckFailed("the receipt is about another request than the one that was asked")


def _check_shards(store: ServerStore, played: Replay) -> None:
    held = {record.client: shard_commitment(record.salt, record.digest) for record in store.shards()}
    taken = {name: entry.commitment for name, entry in played.shards.items()}
    if held != taken:
        name, _ = min(held.items() ^ taken.items())
        raise CheckFailed(f"the shard of client {name} is not the one that the ledger recorded last")
    clients = store.clients()
    if not played.generations.items() <= clients.items():
        raise CheckFailed("the clients' generations are not those that the ledger leads to")
    if {name for name, count in clients.items() if count} - played.generations.keys():  # 0: it has only asked
        raise CheckFailed("a client is recorded that is not in the ledger")


def _check_model(store: ServerStore, played: Replay) -> None:
    model = store.model()
    if played.finished and not store.is_current():
        raise CheckFailed("model and shards are not those of one training, though the ledger says that it was finished")
    if model is None:
        return  # `verify` continues only if the model is the manifest's: then there are no rows
    entry = played.model
    with store.database.reading() as db:
        recorded = tickets.commitments(db, "")["model"]
    if entry.get("model") != recorded:
        raise CheckFailed("the model is not the one that the ledger recorded last")
    if entry.get("record") != mac(model.salt, "record", model.described()).hex():
        raise CheckFailed("the record of the model's training was altered")
