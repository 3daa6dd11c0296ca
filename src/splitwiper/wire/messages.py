"""The messages of the protocol: request → ticket → receipt, and the statement that comes with an upload.

Nothing here names a class, an id or the content of forgotten rows, and anything that only the client may know is
sent as an HMAC under the client's key.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from splitwiper.errors import FormatError, NotFoundError
from splitwiper.reading import read_bytes

Level = Literal["class", "sample", "client"]
TicketState = Literal["accepted", "erased", "settled"]


@dataclass(frozen=True)
class Spent:
    """What a party spent on an operation."""

    seconds: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0

    @property
    def traffic(self) -> int:
        """Bytes in both directions."""
        return self.bytes_up + self.bytes_down

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.seconds + other.seconds, self.bytes_up + other.bytes_up, self.bytes_down + other.bytes_down)


@dataclass(frozen=True)
class Request:
    """A client's request to forget some or all of its rows.

    Attributes:
        ticket: the ticket's id, drawn by the client.
        client: the client's name.
        level: what it forgets.
        commitment: the commitment to the rows that it suppresses, see `splitwiper.wire.commitments`. Empty if a whole
            client is forgotten whose folder is away.
    """

    ticket: str
    client: str
    level: Level
    commitment: str = ""


@dataclass(frozen=True)
class Ticket:
    """The state of a request: accepted, erased (the shard is replaced), settled (the model is re-trained).

    Attributes:
        received: when the server received it; `erased` and `settled` are empty until they happen.
    """

    id: str
    client: str
    level: Level
    state: TicketState
    received: str
    erased: str = ""
    settled: str = ""
    commitment: str = ""


@dataclass(frozen=True)
class Statement:
    """A client's statement with an upload: HMACs of its own context, its numerics, and the tickets it answers."""

    config: str
    initial: str
    key: str
    fingerprint: Mapping[str, str]
    tickets: tuple[str, ...] = ()
    spent: Spent = field(default_factory=Spent)
    codebook: str = ""
    """The id of the codebook that the shard's labels are codes of; empty if labels are not hidden."""
    outputs: int = 0
    """E, the number of codes of that codebook."""
    salt: str = ""
    """The salt of the commitment to the shard, in hex, with which the client can open it. If empty, the server
    draws one."""


@dataclass(frozen=True)
class Receipt:
    """What was done for a ticket. `exact` says how it was done; `verify` proves it by recomputing.

    The requester's own cost is left out: the size of its new shard would reveal how many rows it forgot.

    Attributes:
        commitment: the request's commitment to the rows that it suppresses; empty if a whole client was forgotten in
            its absence.
        context: digests of everything that exactness is relative to.
        before: commitments (HMACs under salts that were erased with the data) to what was erased.
        after: commitments to the present shard, manifest and model; None if nothing is left.
        others: what it cost clients that had requested nothing: none were contacted, they spent nothing.
    """

    ticket: str
    client: str
    level: Level
    commitment: str
    exact: bool
    settled: str
    context: Mapping[str, Any]
    before: Mapping[str, str | None]
    after: Mapping[str, str | None]
    fingerprint: Mapping[str, Mapping[str, str]]
    others: Mapping[str, Any]
    server_seconds: float
    ledger: Mapping[str, Any]
    privacy: Mapping[str, Any] = field(default_factory=dict)
    """What the requester's noise has spent, added by the client itself: neither the server nor the ledger knows
    it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the receipt as plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Receipt:
        """Build a receipt from `to_dict`'s values."""
        # checked no further than by form: `verify` compares the values with what was recorded and recomputed
        try:
            for name in ("context", "before", "after", "fingerprint", "others", "ledger"):
                dict(values[name])
            if not all(isinstance(values[name], str) for name in ("ticket", "client", "level", "commitment")):
                raise TypeError("a name is not a text")
            return cls(**values)
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as problem:
            raise FormatError(f"this is not a receipt ({problem}).") from problem

    def save(self, path: str | Path) -> None:
        """Write the receipt as JSON."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Receipt:
        """Read a receipt written by `save`."""
        try:
            values = json.loads(read_bytes(Path(path)).decode("utf-8"), object_pairs_hook=_named_once)
        except FileNotFoundError as problem:
            raise NotFoundError(f"no receipt {path}.") from problem
        except (ValueError, RecursionError) as problem:
            raise FormatError(f"{path} is not a receipt: {problem}") from problem
        return cls.from_dict(values)


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object of a receipt; refuse a repeated name, which people and programs would read differently."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name is in it twice")
    return fields
