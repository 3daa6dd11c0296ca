"""Embedding: the frozen half's activations of every row, computed once, encoded, and written as the shard."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import IO

import numpy as np
import torch
from torch import Tensor

from splitwiper.certainty import Trial, certain
from splitwiper.client.content import rows_digest
from splitwiper.client.hiding import Survivors, plan_for
from splitwiper.client.local_net import Embedder, features_of
from splitwiper.client.pretrain import ClientHalfInputs, thaw, weights_of
from splitwiper.errors import ResourceError
from splitwiper.exclusive import give_way
from splitwiper.masking.plan import ShardPlan, plain
from splitwiper.numerics import pick_device, still_as_pinned
from splitwiper.privacy import ByPlace, protect, secure_stream
from splitwiper.progress import Progress
from splitwiper.seeding import Stream, isolated_rng, state_digest
from splitwiper.training.cache import to_device
from splitwiper.wire import Column, Shard, write_shard
from splitwiper.wire.codecs import (
    LARGEST,
    BoundedCodec,
    bounded,
    check_fitted,
    codec_for,
    encode,
    farthest,
    fitted_in,
    fitters,
    named,
    prepare,
    too_large,
)
from splitwiper.wire.columns import Array

Batches = Iterator[tuple[dict[str, Tensor], Array]]
_FEATURES = 64
BATCH = 256
"""Rows embedded at a time. Fixed, because a row's last bits may depend on the batch it is computed in."""


def fit(sending: Sending, *, columns: Sequence[Column], on_batch: Progress | None = None) -> None:
    """Add to a frozen state what the codec fits to its activations, fitted to the surviving rows.

    Raises:
        DataError: an activation is NaN or infinite.
    """
    half_inputs = sending.half_inputs
    encoding = prepare(half_inputs.config.encoding)
    with half_inputs.pinned():  # a callback may have set another default device
        by_column = fitters(columns, encoding)
    if not by_column:
        return
    for boundary, _ in sending.batches("fitting the codec", on_batch):
        with half_inputs.pinned():
            for name, fitter in by_column.items():
                fitter.add(boundary[name])
    for column in columns:
        if column.name not in by_column:
            continue
        with half_inputs.pinned():
            fitted = by_column[column.name].fitted()
            codec = codec_for(column, encoding)
            if isinstance(codec, BoundedCodec) and not (reach := codec.reach(fitted)) <= LARGEST:
                raise too_large(half_inputs.name, column.name, reach, LARGEST)
            check_fitted(column, encoding, fitted)
        sending.state |= named({column.name: fitted})


def embed(
    file: IO[bytes],
    sending: Sending,
    *,
    columns: Sequence[Column],
    on_batch: Progress | None = None,
    largest: float = LARGEST,
) -> None:
    """Write the shard of a client's surviving rows: in the order of their HMACs, or in the order that hides labels.

    Raises:
        DataError: an activation is NaN or infinite, does not fit the cut, or is beyond ``largest`` or the codec's
            range.
    """
    half_inputs = sending.half_inputs
    codec, fitted = prepare(half_inputs.config.encoding), fitted_in(sending.state)

    def encoded(boundary: Mapping[str, Tensor]) -> dict[str, Array]:
        out = {}
        with half_inputs.pinned():
            for column in columns:
                values = boundary[column.name]
                sent = encode(values, column, codec, fitted.get(column.name))
                # a codec may round a large finite value to infinity, so both are looked at
                if not bounded(values, largest) or (sent is not values and not bounded(sent, largest)):
                    fits = min(largest, 65504.0) if codec == "float16" else largest
                    raise too_large(half_inputs.name, column.name, farthest(values), fits, codec=codec)
                out[column.name] = sent.cpu().numpy()
        return out

    batches = sending.batches("embedding", on_batch)
    write_shard(
        file,
        columns=columns,
        rows=len(sending.plan),
        labels=sending.labels,
        blocks=((encoded(boundary), codes.astype(np.int32)) for boundary, codes in batches),
        codec=codec,
        fitted=fitted,
        behind=not half_inputs.config.noise.is_on or half_inputs.config.device.startswith("cuda"),
    )


class Sending:
    """The contents of a client's shard: its rows by plan, and their activations."""

    def __init__(self, half_inputs: ClientHalfInputs, state: Mapping[str, Tensor], slices: Sequence[Shard]) -> None:
        self.half_inputs, self.state = half_inputs, dict(state)
        self._rows, rows = Survivors(slices, half_inputs.names), rows_digest(slices)
        self._stream = Stream(half_inputs.seed, "embed", half_inputs.name, rows)
        self._noise, self._secret = half_inputs.config.noise, None
        if self._noise.is_on:
            # the sent values depend on exactly this: the same noise on other values would reveal their difference
            frozen = state_digest(weights_of(state))
            codebook = half_inputs.hiding.codebook.id if half_inputs.hiding else ""
            self._secret = secure_stream(half_inputs.key, "upload", rows, frozen, codebook)
        self.held = self._rows.labels
        with half_inputs.pinned():  # codes may follow from the rows' activations or inputs
            self.plan, self.labels = plan_for(self._rows, half_inputs.hiding, half_inputs.key, self._features)

    def batches(self, what: str = "", on_batch: Progress | None = None, *, unsent: ShardPlan | None = None) -> Batches:
        """Yield activations and label indices of every row of the shard in order, with noise if it is configured.

        Between batches, the caller's own settings of torch apply.

        Args:
            what: names the work in progress messages.
            on_batch: called after each batch.
            unsent: yield these rows instead, without noise, so nothing of them may be sent.
        """
        half_inputs, done = self.half_inputs, 0
        plan = self.plan if unsent is None else unsent
        device = pick_device(half_inputs.config.device)
        with half_inputs.pinned():
            embedder = thaw(half_inputs, self.state).to(device)
        for start in range(0, len(plan), BATCH):
            block = slice(start, start + BATCH)
            boundary = certain(
                partial(self._batch, embedder, device, plan, block),
                partial(self._held, block),
                pinned=partial(still_as_pinned, device, half_inputs.config.numerics),
                key=state_digest,
                what=f"client {half_inputs.name!r}, embedding",
            )
            codes = plan.codes[block]
            if self._secret is not None and unsent is None:
                with half_inputs.pinned():
                    boundary = self._noisy(boundary, codes, ByPlace(self._secret, done))
            yield boundary, codes
            done += len(codes)
            if on_batch:
                on_batch(f"{half_inputs.name}: {what}", done, len(plan))
            give_way()

    def _noisy(self, boundary: Mapping[str, Tensor], codes: Array, place: ByPlace) -> dict[str, Tensor]:
        """Add noise to a batch, so that it may be sent."""
        for name, values in boundary.items():
            if not bounded(values):  # clipping would hide it
                raise too_large(self.half_inputs.name, name, farthest(values), LARGEST)
        counts = torch.from_numpy(np.bincount(self.plan.codes)[codes]) if self._noise.reading == "mean" else 1
        return protect(boundary, self._noise, place, group=counts)

    @property
    def releases(self) -> tuple[int, int]:
        """The largest number of times a row is in the shard, and the largest number of rows that noise is scaled to."""
        touched = np.concatenate([self.plan.source, self.plan.other[self.plan.other >= 0]])
        group = int(np.bincount(self.plan.codes).max()) if self._noise.reading == "mean" else 1
        return int(np.bincount(touched).max()), group

    def truth(self) -> Array:
        """Return the true label of every row of the shard, as an index into the client's labels; −1 for cover rows."""
        return np.where(self.plan.other < 0, self._rows.index()[self.plan.source], -1)

    def sources(self) -> Array:
        """Return a number for every row of the shard that identifies its source row across generations."""
        return np.ascontiguousarray(self._rows.macs[self.plan.source][:, :8]).view("<i8")[:, 0]

    def inputs(self) -> dict[str, Array]:
        """Return the inputs of the source rows of the shard."""
        return {name: tensor.numpy() for name, tensor in self._rows.inputs(self.plan.source).items()}

    def _features(self) -> Array:
        """Compute a few numbers for each surviving row: a fixed random projection of its activations."""
        parts: list[Tensor] = []
        view: Tensor | None = None
        for boundary, _ in self.batches(unsent=plain(np.zeros(len(self._rows), np.int64))):
            flat = features_of(boundary).float().cpu()
            if view is None:
                generator = Stream(self.half_inputs.seed, "features").generator()
                view = torch.randn(flat.shape[1], _FEATURES, generator=generator) / flat.shape[1] ** 0.5
            parts.append(flat @ view)
        return torch.cat(parts).numpy()

    @contextmanager
    def _held(self, block: slice) -> Iterator[None]:
        """Pin global state for a batch, with its own random stream, since some halves draw even when evaluating."""
        stream = dataclasses.replace(self._stream, purpose=f"{self._stream.purpose}/{block.start}")
        with self.half_inputs.pinned(), isolated_rng(stream), torch.no_grad():
            yield

    def _batch(
        self, embedder: Embedder, device: torch.device, plan: ShardPlan, block: slice, trial: Trial
    ) -> dict[str, Tensor]:
        """Compute the activations of a batch."""
        try:
            boundary: dict[str, Tensor] = embedder(to_device(self._rows.inputs(plan.source[block]), device))
            trial.look()
            # cover rows are blends of two rows: `other` is the second one, or -1 for an ordinary row
            if (blended := np.flatnonzero(plan.other[block] >= 0)).size:
                others = embedder(to_device(self._rows.inputs(plan.other[block][blended]), device))
                boundary = _blended(boundary, others, blended, plan.share[block][blended])
        except torch.OutOfMemoryError as problem:
            raise ResourceError(
                f"client {self.half_inputs.name!r}, embedding: the GPU's memory is full ({problem}). Free some, and "
                "call learn or settle again."
            ) from problem
        return boundary


def _blended(ones: Mapping[str, Tensor], others: Mapping[str, Tensor], rows: Array, share: Array) -> dict[str, Tensor]:
    """Blend some rows of a batch with others; tensors that are not floats stay as they are."""
    out = dict(ones)
    for name, one in ones.items():
        if one.is_floating_point():
            # one: batch × anything; weight: blended rows × 1 × … × 1, so that it is broadcast over each row
            at = torch.from_numpy(rows).to(one.device)
            weight = torch.from_numpy(share).to(one).reshape(-1, *[1] * (one.ndim - 1))
            out[name] = one.index_copy(0, at, weight * one[at] + (1 - weight) * others[name])
    return out
