"""The link: everything a client can ask of the server. One protocol, whatever carries it."""

from __future__ import annotations

from collections.abc import Mapping
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
class Scores:
    """The server half's outputs: one row per input, one column per label."""

    labels: tuple[Label, ...]
    logits: Tensor


class Link(Protocol):
    """What a client can ask of the server. Every call may be repeated: the answer is the same."""

    def upload(self, client: str, shard: Path, statement: Statement) -> Accepted:
        """Hand over a shard; it replaces the client's earlier one, which is erased."""
        ...

    def withdraw(self, client: str, statement: Statement) -> None:
        """Erase the client's shard; nothing replaces it."""
        ...

    def submit(self, request: Request) -> Ticket:
        """Ask to be forgotten."""
        ...

    def tickets(self, client: str) -> tuple[Ticket, ...]:
        """Every request made in this client's name, and where it stands."""
        ...

    def predict(self, client: str, boundary: Mapping[str, Tensor]) -> Scores:
        """Run the server half on a client's activations."""
        ...
