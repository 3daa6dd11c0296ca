"""The link: everything a client can ask of the server. One protocol, whatever carries it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor

from splitwiper.wire.labels import Label
from splitwiper.wire.messages import Request, Statement, Ticket


@dataclass(frozen=True)
class Accepted:
    """The server has the shard, durably, under this digest and generation."""

    digest: str
    generation: int


@dataclass(frozen=True)
class Standing:
    """Whether the server, or an operator, erased a client's shard without the client's doing, or takes none of it.

    Attributes:
        seq: the number of the ledger's entry by which the shard was erased; 0 where it was not, or the client has sent
            another one since.
        by: ``"training"``, which failed with it; ``"operator"``; ``"lapse"``, since the client asked to forget rows and
            then sent nothing; or ``"pace"``, since it asked again and again while others waited.
        why: the reason, for people.
        evicted: why no shard of the client is accepted; empty where one is.
    """

    seq: int = 0
    by: str = ""
    why: str = ""
    evicted: str = ""


@dataclass(frozen=True)
class Scores:
    """Outputs: one row per input, one column per label. The server's are named by codes where labels are hidden."""

    labels: tuple[Label, ...]
    logits: Tensor
    codebook: str = ""
    """The name of the codebook that the model's labels are codes of; empty where labels are not hidden."""
    model: str = ""
    """The server's commitment to the model that answered."""
    labels_only: bool = False
    """Whether the server named the most likely label alone: the scores of all others say nothing."""


@dataclass(frozen=True)
class ModelCopy:
    """The server half as it is, for a client that predicts at home."""

    state: Mapping[str, Tensor]
    labels: tuple[Label, ...]
    codebook: str = ""
    commitment: str = ""
    """The server's commitment to it."""
    salt: str = ""
    """What opens that commitment, in hex."""


Fence = Callable[[], AbstractContextManager[object]]
"""Makes a context that is entered only while the caller holds its lease, and in which nobody can take it over."""


@dataclass(frozen=True)
class Posted:
    """A sealed message between clients, as the server relays it; empty where it was erased."""

    place: int
    sender: str
    body: bytes


def lock_of(proof: bytes) -> bytes:
    """What a message begins with that is to be erased for whoever shows the proof, and for nobody else."""
    return hashlib.sha256(proof).digest()


class Link(Protocol):
    """What a client can ask of the server. Every call may be repeated: the answer is the same."""

    travels: bool
    """Whether shards go over a network: clients then say what they were when they wrote them."""

    def upload(
        self,
        client: str,
        shard: Path,
        statement: Statement,
        *,
        digest: str | None = None,
        fence: Fence = nullcontext,
    ) -> Accepted:
        """Hand over a shard; it replaces the client's earlier one, which is erased.

        Args:
            client: whose it is.
            shard: the file.
            statement: what the client says with it.
            digest: of the file, if it was taken when the file was written.
            fence: held for the one moment that decides whether this shard or another process's comes last.
        """
        ...

    def withdraw(self, client: str, statement: Statement, *, fence: Fence = nullcontext) -> None:
        """Erase the client's shard; nothing replaces it. Arguments are those of `upload`."""
        ...

    def standing(self, client: str) -> Standing:
        """Say whether the client's shard was erased without its doing since it last sent one."""
        ...

    def largest_value(self) -> float:
        """Return the largest absolute value of an activation that the server accepts."""
        ...

    def submit(self, request: Request) -> Ticket:
        """Ask to be forgotten. The ticket may be settled at once, where the server holds nothing of the client."""
        ...

    def tickets(self, client: str) -> tuple[Ticket, ...]:
        """Every request made in this client's name, and where it stands."""
        ...

    def predict(self, client: str, boundary: Mapping[str, Tensor]) -> Scores:
        """Run the server half on a client's activations."""
        ...

    def model(self, client: str) -> ModelCopy:
        """Hand out the server half, so that a client can predict without sending anything."""
        ...

    def post(self, client: str, topic: str, place: int, body: bytes) -> None:
        """Relay a sealed message to the other clients. A place is filled once."""
        ...

    def topic(self) -> str:
        """What is being talked about on the board, or was last; empty where nobody ever spoke."""
        ...

    def posted(self, topic: str, since: int = 0) -> tuple[Posted, ...]:
        """The messages of a topic, from a place on."""
        ...
