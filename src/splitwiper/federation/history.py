"""Whether a server's records follow from its ledger, and its ledger from what others remember of it.

The ledger says in order what was made, asked, sent, trained and settled. Played from its first entry, it tells what
tickets, receipts, shards and model there must be now; records that are not those were changed by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from splitwiper.config import config_digest
from splitwiper.errors import CorruptError, NotFoundError, StoreError
from splitwiper.formats import counted
from splitwiper.seeding import mac
from splitwiper.server import Server
from splitwiper.store import ServerTree, ledger, tickets
from splitwiper.store.ledger import START, Head
from splitwiper.store.replay import Replay
from splitwiper.wire import Receipt
from splitwiper.wire.commitments import shard_commitment

_ASKED = ("client", "level", "commitment", "received")


class Altered(Exception):
    """The records are not what the ledger leads to."""


def check_history(server: Server, heads: Mapping[str, Head], receipt: Receipt | None = None) -> str:
    """Check that the ledger only grew, and that the server's records are those it leads to.

    Args:
        server: the server.
        heads: heads of the ledger that others remember, by who does.
        receipt: a receipt that must be one of its own.

    Returns:
        What was found, in words.

    Raises:
        Altered: something does not fit; the message says what.
    """
    tree = server.tree
    try:
        entries = ledger.entries(tree.book)
        played = Replay()
        for entry in entries:
            played.add(entry)
        _check_heads(entries, heads)
        _check_made(server, played)
        _check_tickets(tree, played)
        _check_shards(tree, played)
        _check_model(tree, played)
        if receipt is not None:
            _check_receipt(played, receipt)
    except (CorruptError, NotFoundError) as problem:
        raise Altered(str(problem)) from problem
    except (StoreError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as problem:  # of another kind
        raise Altered(f"a record cannot be read: {problem}") from problem
    seen = f", and grew from the heads that were seen by {', '.join(sorted(heads))}" if heads else ""
    lead = f"{counted(len(entries), 'entry leads', 'entries lead')}"
    return f"{lead} to these tickets, receipts, shards and model{seen}"


def _check_heads(entries: Sequence[Mapping[str, Any]], heads: Mapping[str, Head]) -> None:
    for who, head in heads.items():
        if head.size > len(entries):
            raise Altered(
                f"the ledger was rolled back: it has {len(entries)} entries, and had {head.size} when {who} last saw it"
            )
        if (entries[head.size - 1]["hash"] if head.size else START) != head.hash:
            raise Altered(f"the ledger was rewritten: entry {head.size} is not the one that {who} saw")


def _check_made(server: Server, played: Replay) -> None:
    book = server.tree.book
    if not played.made or any(book.meta(key) != value for key, value in played.made.items()):
        raise Altered("settings, model or first weights are not those the ledger says the run was made with")
    if server.network != book.meta("model"):
        raise Altered("the server half here is another network: its code or constants differ")
    if config_digest(server.config, seed=server.seed) != book.meta("config"):
        raise Altered("the server's config.toml is not what the run was made with")
    server.tree.initial()
    server.tree.client_initial()


def _check_tickets(tree: ServerTree, played: Replay) -> None:
    found = tree.tickets()
    if {ticket.id for ticket in found} != played.asked.keys():
        raise Altered("the tickets are not the requests that the ledger has")
    for ticket in found:
        asked = played.asked[ticket.id]
        if any(getattr(ticket, name) != asked[name] for name in _ASKED):
            raise Altered(f"ticket {ticket.id} is not the request that the ledger has")
        entry = played.settled.get(ticket.id)
        if (ticket.state == "settled") != (entry is not None):
            raise Altered(f"ticket {ticket.id} is {ticket.state}, which is not what the ledger says")
        if entry is not None:
            kept = tree.receipt(ticket.id)
            _check_receipt(played, kept)
            if kept.privacy:  # the client adds that to its own copy
                raise Altered(f"the receipt of ticket {ticket.id} was altered: a server knows nothing of noise")
            if kept.settled != ticket.settled:
                raise Altered(f"ticket {ticket.id} was settled at another time than its receipt says")


def _check_receipt(played: Replay, receipt: Receipt) -> None:
    entry, asked = played.settled.get(receipt.ticket), played.asked.get(receipt.ticket)
    if entry is None or asked is None:
        raise Altered(f"ticket {receipt.ticket} was never settled in this run")
    place = {name: entry[name] for name in ("seq", "hash")}
    if entry["receipt"] != tickets.receipt_digest(receipt) or dict(receipt.ledger) != place:
        raise Altered("the receipt is not the one the ledger recorded: it was altered")
    if receipt.context.get("server_model") != played.made["model"]:
        raise Altered("the receipt is about another network: the model's code or constants differ")
    if any(getattr(receipt, name) != asked[name] for name in ("client", "level", "commitment")):
        raise Altered("the receipt is about another request than the one that was asked")


def _check_shards(tree: ServerTree, played: Replay) -> None:
    held = {record.client: shard_commitment(record.salt, record.digest) for record in tree.shards()}
    taken = {name: entry.commitment for name, entry in played.shards.items()}
    if held != taken:
        odd = sorted(name for name in held.keys() | taken.keys() if held.get(name) != taken.get(name))
        raise Altered(f"the shard of client {odd[0]} is not the one that the ledger took in last")
    clients = tree.clients()
    if any(clients.get(name) != count for name, count in played.generations.items()):
        raise Altered("the clients' generations are not those that the ledger leads to")
    if any(count for name, count in clients.items() if name not in played.generations):
        raise Altered("a client is recorded that the ledger never heard of")


def _check_model(tree: ServerTree, played: Replay) -> None:
    model = tree.model()
    if played.finished and not tree.is_current():
        raise Altered("model and shards are not those of one training, though the ledger says that it was finished")
    if model is None:
        return  # `verify` goes on only where the model is the manifest's: then nobody holds rows
    entry = played.model
    if entry.get("model") != tickets.commitments(tree.book.db, "")["model"]:
        raise Altered("the model is not the one that the ledger recorded last")
    if entry.get("record") != mac(model.salt, "record", model.described()).hex():
        raise Altered("what is recorded of the model's training was altered")


def heads_of(named: Iterable[tuple[str, Head | None]]) -> dict[str, Head]:
    """Heads by who remembers them, of those who remember one."""
    return {who: head for who, head in named if head is not None}
