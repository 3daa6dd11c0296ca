"""Embedding: the frozen half's activations of every row, computed once, coded, and written as the shard."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from splitwiper.cache import CODE, Cache, to_device
from splitwiper.client.content import MAC_COLUMN, rows_digest, sort_order
from splitwiper.client.fitted import Spread, labels_present
from splitwiper.client.pretrain import Recipe, thaw
from splitwiper.errors import DataError, TrainingError
from splitwiper.numerics import pick_device, reproducible
from splitwiper.seeding import Stream, isolated_rng
from splitwiper.store import files
from splitwiper.wire import Column, Shard, write_shard
from splitwiper.wire.codecs import LARGEST, bounded, encode, has_ranges, named, ranges_in, usable
from splitwiper.wire.columns import Array

OnBatch = Callable[[str, int, int], None]
BATCH = 256
"""Rows embedded at a time. Fixed, because a row's last bits may depend on the batch it is computed in."""


def with_ranges(
    recipe: Recipe,
    state: Mapping[str, Tensor],
    slices: Sequence[Shard],
    *,
    columns: Sequence[Column],
    on_batch: OnBatch | None = None,
) -> dict[str, Tensor]:
    """A frozen state, with the ranges that its activations are coded with, fitted to the surviving rows.

    Raises:
        DataError: an activation is NaN or infinite.
    """
    coded = [c for c in columns if has_ranges(c, recipe.config.codec)]
    if not coded:
        return dict(state)
    spreads = {c.name: Spread(c) for c in coded}
    with closing(_activations(recipe, state, slices, on_batch, "fitting ranges")) as batches:
        for boundary, _ in batches:
            for name, spread in spreads.items():
                spread.add(boundary[name])
    out = dict(state)
    for name, spread in spreads.items():
        ranges = spread.ranges(recipe.config.codec)
        if not usable(ranges, recipe.config.codec):
            raise _not_finite(recipe.name, name)
        out |= named({name: ranges})
    return out


def embed(
    path: Path,
    recipe: Recipe,
    state: Mapping[str, Tensor],
    slices: Sequence[Shard],
    *,
    columns: Sequence[Column],
    on_batch: OnBatch | None = None,
) -> None:
    """Write the shard of a client's surviving rows, in the order of their HMACs.

    Raises:
        DataError: an activation is NaN or infinite, does not fit the cut, or is beyond what the codec can hold.
    """
    codec, ranges = recipe.config.codec, ranges_in(state)

    def blocks() -> Iterator[tuple[Mapping[str, Array], Array]]:
        for boundary, codes in batches:
            out = {}
            for column in columns:
                values = boundary[column.name]
                sent = encode(values, column, codec, ranges.get(column.name))
                if not (bounded(values) and bounded(sent)):  # a float16 may overflow where the value did not
                    raise _not_finite(recipe.name, column.name, codec)
                out[column.name] = sent.cpu().numpy()
            yield out, codes.numpy().astype(np.int32)

    batches = _activations(recipe, state, slices, on_batch, "embedding")
    with closing(batches), files.atomic_file(path) as file:
        write_shard(
            file,
            columns=columns,
            rows=sum(s.rows for s in slices),
            labels=labels_present(slices),
            blocks=blocks(),
            codec=codec,
            ranges=ranges,
        )


def _activations(
    recipe: Recipe, state: Mapping[str, Tensor], slices: Sequence[Shard], on_batch: OnBatch | None, what: str
) -> Generator[tuple[dict[str, Tensor], Tensor], None, None]:
    """Activations and label codes of every surviving row, batch by batch, in the order of their HMACs."""
    cache = Cache(slices, labels_present(slices), names=recipe.names)
    order = sort_order(np.concatenate([np.asarray(s.columns[MAC_COLUMN]) for s in slices]))
    device, embedder = pick_device(recipe.config.device), thaw(recipe, state)
    noise = Stream(recipe.seed, "embed", recipe.name, rows_digest(slices))  # for halves that draw even when evaluating
    with reproducible(device, recipe.config.threads), isolated_rng(noise), torch.no_grad():
        embedder.to(device)
        for start in range(0, len(order), BATCH):
            parts = cache.buffers(len(order[start : start + BATCH]))
            cache.gather(order[start : start + BATCH], parts)
            codes = parts.pop(CODE)
            try:
                boundary = embedder(to_device(parts, device))
            except torch.OutOfMemoryError as problem:
                raise TrainingError(
                    f"client {recipe.name!r}, {what}: the GPU's memory is full ({problem}). Free some, and call learn "
                    "or settle again."
                ) from problem
            yield boundary, codes
            if on_batch:
                on_batch(f"{recipe.name}: {what}", min(start + BATCH, len(order)), len(order))


def _not_finite(client: str, column: str, codec: str = "none") -> DataError:
    other = " or take the codec bfloat16," if codec == "float16" else ""
    return DataError(
        f"client {client!r}: {column} has NaN or infinite values after pre-training, or some beyond {LARGEST:g}; lower "
        f"lr, set clip,{other} or scale the inputs (standardise = true), in a new run; in this one, forget the rows "
        "that were added last."
    )
