"""What callers send and get, as the OpenAPI document tells it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from splitwiper.service.stages import Stage
from splitwiper.wire import Accepted, Spent, Statement
from splitwiper.wire.messages import TicketState

Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Plain = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[ -~]+$")]
"""A word that a certificate can repeat."""
Name = Annotated[str, Field(min_length=1, max_length=128)]
Level = Literal["class", "sample", "client"]


class Shape(BaseModel):
    """A message; what it does not know is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SpentShape(Shape):
    """What a client spent."""

    seconds: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0
    bytes_up: Annotated[int, Field(ge=0, le=1 << 50)] = 0
    bytes_down: Annotated[int, Field(ge=0, le=1 << 50)] = 0


class StatementShape(Shape):
    """What a client says with an upload: HMACs of its context, its numerics, and the tickets it answers."""

    config: Plain
    initial: Plain
    key: Plain
    fingerprint: Annotated[dict[Plain, Annotated[str, Field(max_length=500)]], Field(max_length=64)]
    tickets: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=1000)] = []
    spent: SpentShape = SpentShape()
    codebook: Annotated[str, Field(pattern=r"^([0-9a-f]{16,128})?$")] = ""
    outputs: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    salt: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""

    def statement(self) -> Statement:
        """As the protocol has it."""
        values = self.model_dump(exclude={"signed"})
        return Statement(**{**values, "tickets": tuple(values["tickets"]), "spent": Spent(**values["spent"])})


class SignatureShape(Shape):
    """A signature in base64, and the name of its key."""

    keyid: Annotated[str, Field(max_length=64)]
    sig: Annotated[str, Field(max_length=200)]


class SignedShape(Shape):
    """What a site's own key signed: a DSSE envelope, whose payload is canonical JSON.

    A request has the fields federation, client, ticket, level, commitment, made and key; a registration federation,
    client, made and key; a statement about a shard federation, client, serial, digest, commitment, codebook, outputs,
    tickets, made and key.
    """

    payload: Annotated[str, Field(max_length=128 << 10)]
    payloadType: Annotated[str, Field(max_length=100)]
    signatures: Annotated[list[SignatureShape], Field(min_length=1, max_length=1)]


class Begin(Shape):
    """An upload that is to come."""

    size: Annotated[int, Field(ge=1, le=1 << 50)]
    mark: Hex
    """What the client tells its files apart by, so that it finds an upload again that was interrupted."""
    statement: StatementShape
    signed: SignedShape | None = None
    """What the site's own key signed about the shard."""


class Withdraw(StatementShape):
    """A shard that is to be erased; nothing replaces it."""

    signed: SignedShape | None = None
    """What the site's own key signed about that."""


class SiteKey(Shape):
    """The key that a site registered, in hex, and the number of its last statement about a shard."""

    key: str
    serial: int


class Finish(Shape):
    """An upload that is whole: the digest of what was sent."""

    digest: Hex


class Begun(Shape):
    """An upload: how much of it is here."""

    id: str
    size: int
    offset: int
    expires: float
    codings: list[str]
    """How what is sent may be compressed."""


class AcceptedShape(Shape):
    """The server has the shard, durably."""

    digest: str
    generation: int

    @classmethod
    def of(cls, accepted: Accepted) -> AcceptedShape:
        """From the protocol's."""
        return cls(digest=accepted.digest, generation=accepted.generation)


class Ask(Shape):
    """A request to forget. It does not say what: only the client knows."""

    ticket: Annotated[str, Field(pattern=r"^[0-9a-zA-Z_-]{1,64}$")]
    level: Level
    commitment: Hex
    """To the rows that the client suppresses: an HMAC under a salt that only the client knows."""
    signed: SignedShape | None = None


class TicketShape(Shape):
    """Where a request stands: its state, the stages that it has reached and when, and until when it is due."""

    id: str
    client: str
    level: Level
    state: TicketState
    stage: Stage
    stages: dict[Stage, str]
    received: str
    commitment: str
    deadline: str
    overdue: bool
    signed: bool


class FederationShape(Shape):
    """What joining clients must agree with."""

    run: str
    seed: int
    at: str
    architecture: str
    codec: str
    columns: list[tuple[str, str, list[int]]]
    initial: str
    largest_value: float
    """The largest absolute value of an activation that is accepted."""


class StandingShape(Shape):
    """Whether the shard of the client that asks was erased without its doing, or none of it is accepted.

    ``removed`` is the ledger's entry by which it was erased, with the proof that it is in the ledger; null where the
    client has sent another shard since, or nothing of the kind happened. ``evicted`` is the operator's reason to accept
    no shard of the client; empty where one is accepted.
    """

    evicted: str
    removed: dict[str, Any] | None


class PostedShape(Shape):
    """A sealed message between clients, in base64."""

    place: int
    sender: str
    body: str


class Problem(Shape):
    """What went wrong, and what to do."""

    kind: str
    message: str
