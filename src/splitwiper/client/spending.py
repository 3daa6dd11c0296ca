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

    ``shard`` is the key of everything it was computed from, ``copies`` the largest number of times a row is in it
    (cover rows included), and ``group`` the number of rows of its largest code.
    """
    uploads = _entries(store, "released", 3)
    if not uploads or uploads[-1][0] != shard:
        store.remember(released=json.dumps([*uploads, [shard, copies, group]]))


def without_names(store: ClientStore, *, shard: str, half: str) -> dict[str, str]:
    """Return the record of releases with the names of superseded shards and halves blanked: only costs stay.

    Names are keys computed from rows, and would confirm a guess at forgotten ones. ``shard`` and ``half`` are the keys
    that are in use.
    """
    record = {}
    for kind, width, current in (("released", 3, shard), ("asked", 2, half)):
        entries = _entries(store, kind, width)
        for entry in entries:
            if entry[0] != current:
                entry[0] = ""
        if entries:
            record[kind] = json.dumps(entries)
    return record


def record_prediction(store: ClientStore, half: str, *, group: int) -> None:
    """Record that inputs were released. The same input through the same half has the same noise, and spends nothing.

    ``half`` is the key of the half that computed the activations, ``group`` as for `record_upload`.
    """
    asked = _entries(store, "asked", 2)
    if [half, group] not in asked:
        store.remember(asked=json.dumps([*asked, [half, group]]))


def privacy_spent(store: ClientStore, noise: Noise, columns: Sequence[Column]) -> Spending:
    """Return epsilon of a row and of a value after all releases.

    Raises:
        ConfigError: the library for it is not installed.
    """
    from splitwiper.privacy import Budget, Release

    releases = []
    for _, copies, group in _entries(store, "released", 3):
        releases.append(Release(kind="upload", copies=copies, group=group))
    for _, group in _entries(store, "asked", 2):
        releases.append(Release(kind="prediction", group=group))
    # integers cross the cut without noise
    values = sum(math.prod(column.shape) for column in columns if column.dtype.startswith("F"))
    return Budget(noise=noise, values=max(values, 1), releases=tuple(releases)).spent()


def _entries(store: ClientStore, kind: str, width: int) -> list[list[Any]]:
    """Return releases of a kind: each a name and one or two counts."""
    entries = parsed(store.database.meta(kind) or "[]")
    for entry in entries if isinstance(entries, list) else [None]:
        if not isinstance(entry, list) or len(entry) != width:
            raise CorruptError(
                f"{store.database.path} does not say what noise has spent: it was altered. Restore a backup."
            )
        entry[1:] = map(count, entry[1:])
    return entries  # type: ignore[no-any-return]
