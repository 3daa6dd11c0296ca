"""Embedding: the frozen half's activations of every row, computed once, written as the shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splitwiper.cache import Cache, to_device
from splitwiper.client.content import MAC_COLUMN, rows_digest, sort_order
from splitwiper.client.fitted import labels_present
from splitwiper.client.pretrain import Recipe, thaw
from splitwiper.errors import DataError
from splitwiper.numerics import pick_device, reproducible
from splitwiper.seeding import Stream, isolated_rng
from splitwiper.store import files
from splitwiper.wire import Column, Shard, write_shard

Array = np.ndarray[Any, np.dtype[Any]]
BATCH = 256
"""Rows embedded at a time. Fixed, because a row's last bits may depend on the batch it is computed in."""


def embed(
    path: Path,
    recipe: Recipe,
    state: Mapping[str, Tensor],
    slices: Sequence[Shard],
    *,
    columns: Sequence[Column],
    on_batch: Callable[[str, int, int], None] | None = None,
) -> None:
    """Write the shard of a client's surviving rows, in the order of their HMACs.

    Raises:
        DataError: an activation is NaN or infinite, or does not fit the cut.
    """
    labels = labels_present(slices)
    cache = Cache(slices, labels, names=recipe.names)
    order = sort_order(np.concatenate([np.asarray(s.columns[MAC_COLUMN]) for s in slices]))
    device, embedder, name = pick_device(recipe.config.device), thaw(recipe, state), recipe.name
    noise = Stream(recipe.seed, "embed", name, rows_digest(slices))  # for halves that draw even when evaluating

    def blocks() -> Iterator[tuple[Mapping[str, Array], Array]]:
        for start in range(0, len(order), BATCH):
            inputs, codes = cache.batch(order[start : start + BATCH])
            with torch.no_grad():
                boundary = embedder.to(device).eval()(to_device(inputs, device))
            out = {column.name: boundary[column.name].cpu().numpy() for column in columns}
            for column, values in ((c, out[c.name]) for c in columns):
                if values.dtype.kind == "f" and not np.isfinite(values).all():
                    raise DataError(
                        f"client {name!r}: {column.name} has NaN or infinite values after pre-training; "
                        "lower lr, set clip, or scale the inputs (standardise = true), in a new run; in this one, "
                        "forget the rows that were added last."
                    )
            if on_batch:
                on_batch(f"{name}: embedding", min(start + BATCH, len(order)), len(order))
            yield out, codes.numpy().astype(np.int32)

    with reproducible(device, recipe.config.threads), isolated_rng(noise), files.atomic_file(path) as file:
        write_shard(file, columns=columns, rows=len(order), labels=labels, blocks=blocks())
