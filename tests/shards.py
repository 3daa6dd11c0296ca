"""Shards in files, for tests that need one without a client that computes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from splitwiper.wire import Column, Label, Shard, open_shard, write_shard
from splitwiper.wire.codecs import Fitted


def written(
    path: Path,
    column: Column,
    values: np.ndarray,
    labels: Sequence[Label],
    codes: Sequence[int] | np.ndarray | None = None,
    *,
    codec: str = "none",
    fitted: Mapping[str, Fitted | None] | None = None,
) -> Path:
    """Write a shard with one column of encoded values; its rows have the labels in turn, or those of their codes."""
    each = np.arange(len(values)) % len(labels) if codes is None else np.asarray(codes)
    kept = {name: own for name, own in (fitted or {}).items() if own}
    block = {column.name: values}, each.astype(np.int32)
    with path.open("wb") as file:
        write_shard(file, columns=[column], rows=len(values), labels=labels, blocks=[block], codec=codec, fitted=kept)
    return path


def shard(
    path: Path, values: np.ndarray, labels: Sequence[Label], codes: Sequence[int] | None = None, *, name: str = "z"
) -> Shard:
    """Write a shard of float32 values that are not encoded, and open it."""
    return open_shard(written(path, Column(name, "F32", values.shape[1:]), values, labels, codes))
