"""What a client's noise has spent so far, kept in its own folder. The server is told nothing of it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from splitwiper.config import Noise
from splitwiper.errors import CorruptError
from splitwiper.store import ClientTree
from splitwiper.store.records import count, parsed
from splitwiper.wire import Column

if TYPE_CHECKING:
    from splitwiper.privacy import Spending


def record_upload(tree: ClientTree, shard: str, *, copies: int, group: int) -> None:
    """Note that rows were released. A shard that is sent again has the same noise, and spends nothing.

    Args:
        tree: the client's folder.
        shard: what the shard was computed from.
        copies: how often a row is in it, at most, cover rows included.
        group: rows of its largest code.
    """
    uploads = _uploads(tree)
    if not uploads or uploads[-1][0] != shard:
        tree.remember(released=json.dumps([*uploads, [shard, copies, group]]))


def without_names(tree: ClientTree, *, shard: str, half: str) -> dict[str, str]:
    """Return the record of releases with the names of superseded shards and halves blanked: only costs stay.

    Args:
        tree: the client's folder.
        shard: the shard that keeps its name.
        half: the half that keeps its name.
    """
    found = {}
    if uploads := _uploads(tree):
        found["released"] = json.dumps([[name if name == shard else "", *rest] for name, *rest in uploads])
    if asked := _asked(tree):
        found["asked"] = json.dumps([[name if name == half else "", group] for name, group in asked])
    return found


def record_prediction(tree: ClientTree, half: str, *, group: int) -> None:
    """Note that inputs were released. The same input through the same half has the same noise, and spends nothing.

    Args:
        tree: the client's folder.
        half: what the activations were computed with.
        group: rows of a typical label, where noise is scaled to it.
    """
    asked = _asked(tree)
    if [half, group] not in asked:
        tree.remember(asked=json.dumps([*asked, [half, group]]))


def spent(tree: ClientTree, noise: Noise, columns: Sequence[Column]) -> Spending:
    """Epsilon of a row and of a value after all that was released.

    Raises:
        ConfigError: the library for it is not installed.
    """
    from splitwiper.privacy import Budget, Release

    releases = [Release(kind="upload", copies=copies, group=group) for _, copies, group in _uploads(tree)]
    releases += [Release(kind="prediction", group=group) for _, group in _asked(tree)]
    values = sum(math.prod(c.shape) for c in columns if c.dtype.startswith("F"))
    return Budget(noise=noise, values=max(values, 1), releases=tuple(releases)).spent()


def _asked(tree: ClientTree) -> list[list[Any]]:
    return [[name, count(group)] for name, group in _entries(tree, "asked", 2)]


def _uploads(tree: ClientTree) -> list[tuple[str, int, int]]:
    return [(name, count(copies), count(group)) for name, copies, group in _entries(tree, "released", 3)]


def _entries(tree: ClientTree, key: str, width: int) -> list[list[Any]]:
    kept = parsed(tree.book.meta(key) or "[]")
    if not isinstance(kept, list) or not all(isinstance(entry, list) and len(entry) == width for entry in kept):
        raise CorruptError(f"{tree.book.path} does not say what noise has spent: it was altered. Restore a backup.")
    return kept
