"""The link: everything a client can ask of the server. One protocol for every transport."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from torch import Tensor

from splitwiper.wire.labels import Label
from splitwiper.wire.messages import Receipt, Request, Statement, Ticket


@dataclass(frozen=True)
class Accepted:
    """The server's acknowledgement: it has stored the shard durably, under this digest and generation."""

    digest: str
    generation: int
    travelled: int = field(default=0, compare=False)
    """The bytes that this upload took on the way, which depend on the link."""


@dataclass(frozen=True)
class Standing:
    """Whether the server or an operator erased a client's shard of its own accord, or accepts none from it.

    Attributes:
        seq: the number of the ledger's entry by which the shard was erased; 0 if it was not, or the client has sent
            another one since.
        by: ``"training"``, which failed with it; ``"operator"``; ``"lapse"``: the client requested forgetting and
            then sent nothing; or ``"pace"``: it made many requests while others waited.
        why: the reason, for people.
        evicted: why no shard of the client is accepted; empty if one is.
    """

    seq: int = 0
    by: str = ""
    why: str = ""
    evicted: str = ""


@dataclass(frozen=True)
class Scores:
    """Outputs: one row per input, one column per label. The server's columns are codes if labels are hidden."""

    labels: tuple[Label, ...]
    logits: Tensor
    codebook: str = ""
    """The id of the codebook that the model's labels are codes of; empty if labels are not hidden."""
    model: str = ""
    """The server's commitment to the model that answered."""
    labels_only: bool = False
    """Whether the server returned only the most likely label: the other scores are meaningless."""


@dataclass(frozen=True)
class ModelCopy:
    """The present server half, for a client that predicts locally."""

    state: Mapping[str, Tensor]
    labels: tuple[Label, ...]
    codebook: str = ""
    commitment: str = ""
    """The server's commitment to the model."""
    salt: str = ""
    """The salt that opens the commitment, in hex."""


Fence = Callable[[], AbstractContextManager[object]]
"""Returns a context that is entered only while the caller holds its lease, and in which nobody can take it over."""


@dataclass(frozen=True)
class Posted:
    """A sealed message between clients, as the server relays it; empty if it was erased."""

    place: int
    sender: str
    body: bytes


def lock_of(proof: bytes) -> bytes:
    """Return the prefix that lets the holder of ``proof``, and only that holder, have a message erased."""
    return hashlib.sha256(proof).digest()


class Link(Protocol):
    """Everything a client can ask of the server. Every call may be repeated, with the same answer."""

    def upload(
        self, client: str, shard: Path, statement: Statement, *, digest: str | None = None, fence: Fence = nullcontext
    ) -> Accepted:
        """Upload a shard; it replaces the client's earlier one, which is erased.

        ``digest`` is the file's, if it was computed when the file was written. ``fence`` is held for the one moment
        that decides whether this shard or another process's comes last.
        """
        ...

    def withdraw(self, client: str, statement: Statement, *, fence: Fence = nullcontext) -> None:
        """Erase the client's shard without a replacement. Arguments are those of `upload`."""
        ...

    def standing(self, client: str) -> Standing:
        """Return whether the server erased the client's shard of its own accord, or accepts none from it.

        An erasure counts until the client sends a shard again.
        """
        ...

    def largest_value(self) -> float:
        """Return the largest absolute value of an activation that the server accepts."""
        ...

    def submit(self, request: Request) -> Ticket:
        """Submit a request to forget. The ticket may be settled immediately if the server has nothing of the client."""
        ...

    def tickets(self, client: str) -> tuple[Ticket, ...]:
        """Return every request made in this client's name, and its state."""
        ...

    def receipt(self, ticket: str) -> Receipt:
        """Return the receipt of a settled request: what was done for it."""
        ...

    def predict(self, client: str, boundary: Mapping[str, Tensor]) -> Scores:
        """Run the server half on a client's activations."""
        ...

    def model(self, client: str) -> ModelCopy:
        """Return the server half, so that a client can predict without sending anything."""
        ...

    def post(self, client: str, topic: str, place: int, body: bytes) -> None:
        """Relay a sealed message to the other clients. A sequence number is used once."""
        ...

    def topic(self) -> str:
        """Return the current topic on the relay, or the latest one; empty if there was none."""
        ...

    def posted(self, topic: str, since: int = 0) -> tuple[Posted, ...]:
        """Return the messages of a topic, from a sequence number on."""
        ...

    def ended(self, topic: str, proof: bytes = b"") -> None:
        """Report that a negotiation has ended; if it was abandoned, with the proof (see `lock_of`) to erase it."""
        ...
