"""The state that a ledger leads to when it is replayed from its first entry: the single shared reading of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from splitwiper.errors import CorruptError
from splitwiper.store.ledger import WITHDRAWERS

_NOTED = ("key-revoked", "lapsed", "restored")
"""Entries that change neither shards, model, keys nor tickets."""


@dataclass(frozen=True)
class ShardEntry:
    """A shard that the ledger recorded.

    Attributes:
        commitment: the commitment to the shard.
        key: the key that its client had registered then, in hex; empty if it had none.
        since: the number of the first entry that recorded it.
        outdated: the number of a later entry which shows that the shard should be gone: it recorded another shard of
            the client, withdrew one, or accepted a request of the client that was settled; 0 if there is none.
            Clients draw a new salt for every new shard and every answer to a request, so no commitment ever comes back.
    """

    commitment: str
    key: str
    since: int = 0
    outdated: int = 0


@dataclass
class Replay:
    """The state that a ledger leads to.

    Attributes:
        made: the first entry, with what the store was created with, without its number and hash.
        keys: the key that each client has registered.
        dropped: the number of the newest entry that dropped a client's key on the operator's order.
        evicted: clients that an operator evicted and did not admit again.
        shards: the shard of each client that has one.
        removed: who erased the shard of each client that lost it other than by its own doing.
        generations: how often each client's shard was replaced or withdrawn.
        model: the newest entry about a model.
        finished: whether nothing was sent or requested since that entry.
        asked, settled: entries that accepted or settled a request, by ticket.
    """

    made: Mapping[str, Any] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    evicted: set[str] = field(default_factory=set)
    shards: dict[str, ShardEntry] = field(default_factory=dict)
    removed: dict[str, str] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    finished: bool = False
    asked: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    settled: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _first: dict[tuple[str, str], int] = field(default_factory=dict)
    """The number of the first entry about each client's shard, by commitment."""
    _newest: dict[str, int] = field(default_factory=dict)
    """The number of the newest entry about each client after which an earlier shard must be gone."""

    def add(self, entry: Mapping[str, Any]) -> None:
        """Apply the next entry; refuse one that repeats what is recorded only once, or is of an unknown kind."""
        kind = str(entry.get("kind"))
        if (kind == "created") != (not self.made):  # the first entry, and no other, says how the store was made
            raise CorruptError("the ledger does not begin with how the store was made, or says that again later.")
        # "settled" is not among these: its entry comes right after that of the model which answers the request
        if kind in ("model", "shard", "withdrawn", "accepted"):
            self.finished = kind == "model"
        if kind == "created":
            self.made = {key: value for key, value in entry.items() if key not in ("kind", "seq", "hash")}
        elif kind in ("shard", "withdrawn"):
            self._shard(kind, entry)
        elif kind == "model":
            self.model = entry
        elif kind in ("accepted", "settled"):
            self._ticket(kind, entry)
        elif kind == "joined":
            self.keys[entry["client"]] = entry["key"]
        elif kind == "key-dropped":
            self.keys.pop(entry["client"], None)
            self.dropped[entry["client"]] = int(entry.get("seq", 0))
        elif kind == "evicted":
            self.evicted.add(entry["client"])
        elif kind == "admitted":
            self.evicted.discard(entry["client"])
        elif kind not in _NOTED:
            raise CorruptError(f"the ledger has an entry of a kind that is not known here: {kind[:40]!r}.")

    def _shard(self, kind: str, entry: Mapping[str, Any]) -> None:
        client = entry["client"]
        if kind == "withdrawn" and entry.get("by", "") not in ("", *WITHDRAWERS):
            raise CorruptError(f"the ledger has a shard withdrawn by {str(entry['by'])[:40]!r}, who is not known here.")
        if kind == "shard" and client in self.evicted:
            raise CorruptError(f"the ledger took in a shard of client {client!r}, which an operator had evicted.")
        self.generations[client] = self.generations.get(client, 0) + 1
        self.shards.pop(client, None)
        self.removed.pop(client, None)
        if entry.get("by"):
            self.removed[client] = entry["by"]
        number = int(entry.get("seq", 0))
        if kind == "withdrawn":
            self._newest[client] = number
            return
        # A commitment that was recorded before counts from its first entry. An honest client never repeats one, so if
        # anything about the client was recorded in between, this is an old shard that somebody put back.
        since = self._first.setdefault((client, entry["shard"]), number)
        newest = max(since, self._newest.get(client, 0))
        self._newest[client] = newest
        outdated = newest if newest > since else 0
        self.shards[client] = ShardEntry(entry["shard"], self.keys.get(client, ""), since, outdated)

    def _ticket(self, kind: str, entry: Mapping[str, Any]) -> None:
        ticket = entry["ticket"]
        if ticket in (self.asked if kind == "accepted" else self.settled):
            raise CorruptError(f"the ledger says twice that ticket {ticket} was {kind}.")
        if kind == "accepted":
            self.asked[ticket] = entry
            return
        if ticket not in self.asked:
            raise CorruptError(f"the ledger settles ticket {ticket}, which nobody asked for.")
        self.settled[ticket] = entry
        # a shard that the client sent before the request cannot be the answer to it
        client, number = self.asked[ticket]["client"], int(self.asked[ticket].get("seq", 0))
        self._newest[client] = max(number, self._newest.get(client, 0))
        held = self.shards.get(client)
        if held is not None and held.since < number:
            self.shards[client] = replace(held, outdated=number)
