"""Records of shards and the model in the server's database, and the manifest they make up."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from splitwiper.errors import CorruptError, DataError, SplitWiperError
from splitwiper.seeding import Part, digest
from splitwiper.wire import Column, Label
from splitwiper.wire.columns import DTYPES
from splitwiper.wire.labels import in_order

_MOST_OUTPUTS = 1 << 20
"""More codes than any codebook has."""


@dataclass(frozen=True)
class ShardRecord:
    """One line of the manifest, and the file of its shard."""

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
    """The client's own signature of it, if clients sign."""


@dataclass(frozen=True)
class ModelRecord:
    """The current server model, and what it was trained from."""

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
    """Root of the training's transcript, in hex; empty if it has none."""

    def described(self) -> str:
        """Return the database's record of the model as a text that the ledger commits to."""
        # named one by one, and not all fields: the ledger's commitments to older models must stay as they are
        record = {
            "manifest": self.manifest,
            "labels": [label.text for label in self.labels],
            "exact": self.exact,
            "fingerprint": dict(self.fingerprint),
            "seconds": self.seconds,
            "losses": self.losses,
            "codebook": self.codebook,
            "transcript": self.transcript,
        }
        return json.dumps(record, sort_keys=True)


@dataclass(frozen=True)
class EpochRecord:
    """The state after an epoch of the model's training, and its file."""

    epoch: int
    file: str
    digest: str


# --- values of a database, which somebody may have altered --------------------------------------------------


@contextmanager
def _unaltered(what: str) -> Iterator[None]:
    """Turn errors of reading a stored value into the error for a value that this program did not write."""
    try:
        yield
    except CorruptError:  # it says so already
        raise
    except (SplitWiperError, ValueError, TypeError, RecursionError) as problem:
        raise CorruptError(f"{what} cannot be read ({problem}): it was altered. Restore a backup.") from problem


def parsed(text: str) -> Any:
    """Parse a value that a database stores as JSON."""
    with _unaltered("a record"):
        return json.loads(text)


def hex_in(text: str) -> bytes:
    """Parse bytes from their stored text."""
    with _unaltered("a record"):
        return bytes.fromhex(text)


@lru_cache(maxsize=4096)  # many clients have the same labels, and parsing them takes most of the time of a look
def labels_in(text: str) -> tuple[Label, ...]:
    """Parse labels from their stored text."""
    with _unaltered("a list of labels"):
        return tuple(map(Label.parse, parsed(text)))


def columns_in(kept: Any) -> tuple[Column, ...]:
    """Parse columns from their stored values."""
    columns: list[Column] = []
    with _unaltered("a list of columns"):
        for name, dtype, shape in kept:
            if dtype not in DTYPES:
                raise ValueError(f"there is no dtype {dtype!r}")
            columns.append(Column(str(name), dtype, tuple(map(count, shape))))
    return tuple(columns)


def plain_name(value: object) -> str:
    """Return the name of a file that a database points to, if it is a bare name that leads out of no folder."""
    if not isinstance(value, str) or value in ("", ".", "..") or len(value) > 255 or set(value) & set("/\\\0"):
        raise CorruptError(f"a record names the file {value!r}: it was altered. Restore a backup.")
    return value


def count(value: object, *, most: int = 1 << 62) -> int:
    """Return a number of rows, bytes or the like from a database, if it is one."""
    if type(value) is not int or not 0 <= value <= most:
        raise CorruptError(f"a record counts {value!r}: it was altered. Restore a backup.")
    return value


def fingerprint_in(text: str) -> dict[str, str]:
    """Parse the fingerprint of a training from its stored text."""
    fingerprint = parsed(text)
    if not isinstance(fingerprint, dict) or set(map(type, fingerprint.values())) - {str}:
        raise CorruptError("the fingerprint of a training cannot be read: it was altered. Restore a backup.")
    if not re.fullmatch(r"[0-9]{1,6}", fingerprint.get("threads", "")):
        raise CorruptError("the fingerprint of a training has no number of threads: it was altered. Restore a backup.")
    return fingerprint


def texts(labels: Sequence[Label]) -> str:
    """Return labels as the text that is stored."""
    return json.dumps([label.text for label in labels])


def shard_record(row: sqlite3.Row) -> ShardRecord:
    """Read a line of the manifest from the database, and refuse one that this program did not write."""
    strings = {type(row["client"]), type(row["digest"]), type(row["codebook"]), type(row["signed"] or "")}
    if strings != {str} or not isinstance(row["salt"], bytes):
        raise CorruptError(f"the record of the shard of {row['client']!r} was altered: restore a backup.")
    plain_name(row["file"])
    for name in ("rows", "size", "generation"):
        count(row[name])
    count(row["outputs"], most=_MOST_OUTPUTS)
    return ShardRecord(**{**dict(row), "labels": labels_in(row["labels"])})


def model_record(row: sqlite3.Row) -> ModelRecord:
    """Read the record of the model from the database, and refuse one that this program did not write."""
    plain_name(row["file"])
    if not isinstance(row["salt"], bytes) or not isinstance(row["digest"], str):
        raise CorruptError("the record of the model was altered: restore a backup.")
    values = dict(row)
    del values["one"]  # the key of the table's only row
    values["labels"] = labels_in(row["labels"])
    values["exact"] = bool(row["exact"])
    values["fingerprint"] = fingerprint_in(row["fingerprint"])
    values["losses"] = tuple(parsed(row["losses"]) or ())
    return ModelRecord(**values)


def manifest_digest(shards: Sequence[ShardRecord]) -> str:
    """Return the digest of a manifest: clients, shard digests, row counts, and the codebook; nothing of history."""
    parts: list[Part] = []
    for shard in shards:
        parts += [shard.client, shard.digest, shard.rows, shard.codebook, shard.outputs]
    return digest("manifest", *parts)


def outputs_of(shards: Sequence[ShardRecord]) -> tuple[Label, ...]:
    """Return the outputs of a model trained on these shards: the labels that rows have, or all codes if hidden.

    Raises:
        DataError: the shards use different codebooks.
        CorruptError: a shard has codes that its codebook does not.
    """
    clients: dict[str, list[str]] = {}  # by codebook
    labels: set[Label] = set()
    for shard in shards:
        clients.setdefault(shard.codebook, []).append(shard.client)
        labels.update(shard.labels)
    if len(clients) > 1:
        groups = "; ".join(", ".join(clients[codebook]) for codebook in sorted(clients))
        raise DataError(
            f"clients use different codebooks ({groups}), so their codes mean different things: a rekey is "
            "unfinished. Bring every client's folder, and settle."
        )
    if not shards or not shards[0].codebook:
        return in_order(labels)
    # All codes, also those that no row has: which of them occur would tell how many labels there are.
    codes = tuple(Label("", code) for code in range(max(shard.outputs for shard in shards)))
    for shard in shards:
        if not set(shard.labels) <= set(codes):
            raise CorruptError(
                f"the database does not say how the labels of {shard.client!r} are hidden: it was altered."
            )
    return codes
