"""The bodies of requests and responses, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, model_validator

from splitwiper.service.records.requests import Stage
from splitwiper.wire import Spent, Statement
from splitwiper.wire.messages import TicketState

Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Plain = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[ -~]+$")]
"""Printable ASCII, which a certificate can repeat."""
Name = Annotated[str, Field(min_length=1, max_length=128)]
Level = Literal["class", "sample", "client"]
_FIELDS = 64
"""Entries of an object whose fields the caller names."""


def _few(given: Any, most: int = _FIELDS) -> Any:
    """Refuse an object with too many fields as a whole: reporting hundreds of thousands one by one takes seconds."""
    if isinstance(given, dict) and len(given) > most:
        raise ValueError(f"it has {len(given):,} fields, where {most} are the most")
    return given


class ApiShape(BaseModel):
    """A message; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _check_number(cls, given: Any) -> Any:
        return _few(given, len(cls.model_fields))


class SpentShape(ApiShape):
    """A client's time and traffic."""

    seconds: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0
    bytes_up: Annotated[int, Field(ge=0, le=1 << 50)] = 0
    bytes_down: Annotated[int, Field(ge=0, le=1 << 50)] = 0


class StatementShape(ApiShape):
    """A client's statement about an upload: HMACs of its context, its numerics, and the tickets that it answers."""

    config: Plain
    initial: Plain
    key: Plain
    fingerprint: Annotated[
        dict[Plain, Annotated[str, Field(max_length=500)]], Field(max_length=_FIELDS), BeforeValidator(_few)
    ]
    tickets: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=1000), FailFast()] = []
    spent: SpentShape = SpentShape()
    codebook: Annotated[str, Field(pattern=r"^([0-9a-f]{16,128})?$")] = ""
    outputs: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    salt: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""

    def statement(self) -> Statement:
        """Return the protocol's statement."""
        values = self.model_dump(exclude={"signed"})
        return Statement(**{**values, "tickets": tuple(values["tickets"]), "spent": Spent(**values["spent"])})


class SignatureShape(ApiShape):
    """A signature in base64, and its key's id."""

    keyid: Annotated[str, Field(max_length=64)]
    sig: Annotated[str, Field(max_length=200)]


class SignedShape(ApiShape):
    """A message signed with a site's own key: a DSSE envelope, whose payload is canonical JSON.

    A request has the fields federation, client, ticket, level, commitment, made and key; a registration federation,
    client, made and key; a statement about a shard federation, client, serial, digest, commitment, codebook, outputs,
    tickets, made and key.
    """

    payload: Annotated[str, Field(max_length=128 << 10)]
    payloadType: Annotated[str, Field(max_length=100)]
    signatures: Annotated[list[SignatureShape], Field(min_length=1, max_length=1)]


class Begin(ApiShape):
    """The announcement of an upload."""

    size: Annotated[int, Field(ge=1, le=1 << 50)]
    mark: Hex
    """A client's identifier for its file, by which it finds an interrupted upload again."""
    statement: StatementShape
    signed: SignedShape | None = None
    """The site's signed statement about the shard."""


class Withdraw(StatementShape):
    """The statement for erasing a shard that nothing replaces."""

    signed: SignedShape | None = None
    """The site's signed statement about that."""


class SiteKey(ApiShape):
    """A site's registered key, in hex, and the serial number of its last statement about a shard."""

    key: str
    serial: int


class Finish(ApiShape):
    """The end of an upload: the digest of the complete file."""

    digest: Hex


class Begun(ApiShape):
    """An upload, and how many of its bytes the server has."""

    id: str
    size: int
    offset: int
    expires: float
    codings: list[str]
    """Accepted compressions of the body."""


class AcceptedShape(ApiShape):
    """An accepted shard: the server has stored it durably."""

    digest: str
    generation: int


class Ask(ApiShape):
    """A request to forget. It does not say what to forget: only the client knows."""

    ticket: Annotated[str, Field(pattern=r"^[0-9a-zA-Z_-]{1,64}$")]
    level: Level
    commitment: Hex
    """Commitment to the rows that the client suppresses: an HMAC under a salt that only the client knows."""
    signed: SignedShape | None = None


class TicketShape(ApiShape):
    """A request's progress: its state, the stages that it has reached and when, and its deadline."""

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


class FederationShape(ApiShape):
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


class StandingShape(ApiShape):
    """Whether the caller's shard was erased by another party, and whether its shards are accepted.

    ``removed`` is the ledger entry by which it was erased, with the proof that it is in the ledger; null if the client
    has sent another shard since, or nothing of the kind happened. ``evicted`` is the operator's reason to accept no
    shard of the client; empty if shards are accepted.
    """

    evicted: str
    removed: dict[str, Any] | None


class PostedShape(ApiShape):
    """A sealed message between clients, in base64."""

    place: int
    sender: str
    body: str


class ProblemShape(ApiShape):
    """An error, and what to do about it."""

    kind: str
    message: str
