"""What the server's book says of shards and the model, and the manifest they make up."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splitwiper.errors import CorruptError, DataError, SplitWiperError
from splitwiper.seeding import digest
from splitwiper.wire import Label
from splitwiper.wire.labels import in_order


@dataclass(frozen=True)
class ShardRecord:
    """One line of the manifest, and where the shard lies."""

    client: str
    file: str
    digest: str
    rows: int
    size: int
    salt: bytes
    labels: tuple[Label, ...]
    codebook: str
    outputs: int
    generation: int
    signed: str | None = None
    """What the client's own key signed about it, where clients sign."""


@dataclass(frozen=True)
class ModelRecord:
    """The server model that counts, and what it was trained from."""

    file: str
    digest: str
    manifest: str
    salt: bytes
    labels: tuple[Label, ...]
    exact: bool
    fingerprint: Mapping[str, str]
    seconds: float
    losses: tuple[float, ...]
    codebook: str = ""
    transcript: str = ""
    """Root of the training's transcript, in hex; empty where it has none."""

    def described(self) -> str:
        """What the book says of the model, as a text that the ledger commits to."""
        told = {
            "manifest": self.manifest,
            "labels": [label.text for label in self.labels],
            "exact": self.exact,
            "fingerprint": dict(self.fingerprint),
            "seconds": self.seconds,
            "losses": list(self.losses),
            "codebook": self.codebook,
            "transcript": self.transcript,
        }
        return json.dumps(told, sort_keys=True)


@dataclass(frozen=True)
class EpochRecord:
    """The state after an epoch of the model's training, and where it lies."""

    epoch: int
    file: str
    digest: str


def parsed(text: str) -> Any:
    """Return a value from the JSON that a book keeps it as.

    Raises:
        CorruptError: it cannot be read.
    """
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as problem:
        raise CorruptError(f"a record cannot be read ({problem}): it was altered. Restore a backup.") from problem


def labels_in(text: str) -> tuple[Label, ...]:
    """Labels from the text they are kept as."""
    try:
        return tuple(Label.parse(item) for item in parsed(text))
    except (SplitWiperError, ValueError, TypeError) as problem:
        raise CorruptError(f"labels cannot be read ({problem}): they were altered. Restore a backup.") from problem


def texts(labels: Sequence[Label]) -> str:
    """Labels as the text they are kept as."""
    return json.dumps([label.text for label in labels])


def shard_record(row: sqlite3.Row) -> ShardRecord:
    """A line of the manifest from the book."""
    return ShardRecord(**{**dict(row), "labels": labels_in(row["labels"])})


def manifest_digest(shards: Sequence[ShardRecord]) -> str:
    """Digest of a manifest: clients, shard digests, row counts, and the codebook; nothing of their history."""
    return digest("manifest", *(part for s in shards for part in (s.client, s.digest, s.rows, s.codebook, s.outputs)))


def outputs_of(shards: Sequence[ShardRecord]) -> tuple[Label, ...]:
    """What a model trained on these shards tells apart: the labels some row has, or all codes where they are hidden.

    Raises:
        DataError: the shards' codes are those of different codebooks.
    """
    books = {s.codebook for s in shards}
    if len(books) > 1:
        groups = [", ".join(s.client for s in shards if s.codebook == book) for book in sorted(books)]
        raise DataError(
            f"clients use different codebooks ({'; '.join(groups)}), so their codes mean different things: a rekey is "
            "unfinished. Bring every client's folder, and settle."
        )
    if shards and shards[0].codebook:
        return tuple(Label("", code) for code in range(max(s.outputs for s in shards)))
    return in_order(label for s in shards for label in s.labels)
