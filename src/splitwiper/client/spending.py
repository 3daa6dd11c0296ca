"""What a client's noise has spent so far, stored in its own folder. The server learns nothing of it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from splitwiper.config import Noise
from splitwiper.errors import CorruptError
from splitwiper.store import ClientStore
from splitwiper.store.records import count, parsed
from splitwiper.wire import Column

if TYPE_CHECKING:
    from splitwiper.privacy import Spending


def record_upload(store: ClientStore, shard: str, *, copies: int, group: int) -> None:
    """Record that rows were released. Sending the same shard again repeats the same noise, and spends nothing.

    Args:
        store: the client's store.
        shard: the key of everything the shard was computed from.
        copies: the largest number of times a row is in it, cover rows included.
        group: the number of rows of its largest code.
    """
    uploads = _uploads(store)
    if not uploads or uploads[-1][0] != shard:
        store.remember(released=json.dumps([*uploads, [shard, copies, group]]))


def without_names(store: ClientStore, *, shard: str, half: str) -> dict[str, str]:
    """Return the record of releases with the names of superseded shards and halves blanked: only costs stay.

    Args:
        store: the client's store.
        shard: the key of the shard that keeps its name.
        half: the key of the half that keeps its name.
    """
    found = {}
    if uploads := _uploads(store):
        found["released"] = json.dumps([[name if name == shard else "", *rest] for name, *rest in uploads])
    if asked := _asked(store):
        found["asked"] = json.dumps([[name if name == half else "", group] for name, group in asked])
    return found


def record_prediction(store: ClientStore, half: str, *, group: int) -> None:
    """Record that inputs were released. The same input through the same half has the same noise, and spends nothing.

    Args:
        store: the client's store.
        half: the key of the half that computed the activations.
        group: the number of rows of a typical label, for noise that is scaled to it.
    """
    asked = _asked(store)
    if [half, group] not in asked:
        store.remember(asked=json.dumps([*asked, [half, group]]))


def spent(store: ClientStore, noise: Noise, columns: Sequence[Column]) -> Spending:
    """Return epsilon of a row and of a value after all releases.

    Raises:
        ConfigError: the library for it is not installed.
    """
    from splitwiper.privacy import Budget, Release

    releases = [Release(kind="upload", copies=copies, group=group) for _, copies, group in _uploads(store)]
    releases += [Release(kind="prediction", group=group) for _, group in _asked(store)]
    values = sum(math.prod(c.shape) for c in columns if c.dtype.startswith("F"))
    return Budget(noise=noise, values=max(values, 1), releases=tuple(releases)).spent()


def _asked(store: ClientStore) -> list[list[Any]]:
    return [[name, count(group)] for name, group in _entries(store, "asked", 2)]


def _uploads(store: ClientStore) -> list[tuple[str, int, int]]:
    return [(name, count(copies), count(group)) for name, copies, group in _entries(store, "released", 3)]


def _entries(store: ClientStore, key: str, width: int) -> list[list[Any]]:
    kept = parsed(store.database.meta(key) or "[]")
    if not isinstance(kept, list) or not all(isinstance(entry, list) and len(entry) == width for entry in kept):
        raise CorruptError(
            f"{store.database.path} does not say what noise has spent: it was altered. Restore a backup."
        )
    return kept
