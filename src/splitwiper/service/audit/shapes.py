"""The server's answers to an auditor, validated before anything else uses them."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from splitwiper.errors import MismatchError, SplitWiperError
from splitwiper.store import ModelRecord
from splitwiper.store.records import labels_in

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=1 << 53)]
Text = Annotated[str, Field(max_length=200)]


class AuditShape(BaseModel):
    """A part of an answer; unknown fields are ignored, so that newer servers can send more."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class HeadShape(AuditShape):
    """The ledger's head."""

    size: Count
    root: Hash


class ShardShape(AuditShape):
    """A shard, and its site's signed statement about it."""

    client: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    digest: Hash
    rows: Count
    size: Count
    salt: Hash
    codebook: Text
    outputs: Count
    signed: Annotated[str, Field(max_length=1 << 16)] | None


class ModelShape(AuditShape):
    """The model's record."""

    digest: Hash
    manifest: Hash
    salt: Hash
    labels: list[Any]
    exact: bool
    fingerprint: dict[str, str]
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    losses: list[float]
    codebook: Text
    transcript: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]

    def record(self) -> ModelRecord:
        """Return the record as a server's database has it.

        Raises:
            MismatchError: its labels cannot be read.
        """
        values = {**self.model_dump(), "salt": bytes.fromhex(self.salt), "losses": tuple(self.losses)}
        try:
            labels = labels_in(json.dumps(self.labels))
        except (TypeError, ValueError, SplitWiperError) as problem:
            raise MismatchError(f"the labels of the server's model cannot be read ({problem}).") from problem
        return ModelRecord(file="model.safetensors", **{**values, "labels": labels})


class ManifestShape(AuditShape):
    """One state of the server: the model, the shards that it was trained from, and the digests of the epoch states."""

    head: HeadShape
    model: ModelShape | None
    shards: list[ShardShape]
    epochs: list[Hash]

    def is_same(self, other: ManifestShape) -> bool:
        """Return whether another answer is about the same model and shards, even if the ledger has grown since."""
        return (self.model, self.shards, self.epochs) == (other.model, other.shards, other.epochs)


def read_manifest(answer: Any) -> ManifestShape:
    """Validate and return the server's manifest of its model and shards.

    Raises:
        MismatchError: it is malformed, or lists a client twice.
    """
    try:
        found = ManifestShape.model_validate(answer)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(map(str, first["loc"])) or "all of it"
        raise MismatchError(f"the server's manifest cannot be read ({where[:80]}: {first['msg'][:200]}).") from problem
    names = [shard.client for shard in found.shards]
    if len(set(names)) != len(names):
        raise MismatchError("the server's manifest lists a client twice.")
    return found
