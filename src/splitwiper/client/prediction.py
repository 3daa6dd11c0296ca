"""Prediction: the frozen half's activations of new inputs, and the server half's answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from splitwiper.client.embed import BATCH
from splitwiper.client.hiding import Hiding
from splitwiper.client.local_net import Embedder
from splitwiper.client.pretrain import ClientHalfInputs, thaw, weights_of
from splitwiper.data.rows import as_inputs, column_names
from splitwiper.data.tables import ColumnNames, arranged, check_alike
from splitwiper.errors import DataError
from splitwiper.numerics import device_at_hand, reproducible
from splitwiper.privacy import ByContent, protect, row_contents, secure_stream
from splitwiper.seeding import state_digest
from splitwiper.splitting import ServerHalf
from splitwiper.training.cache import to_device
from splitwiper.wire import Column, Label, ModelCopy, Scores
from splitwiper.wire.codecs import fitted_in, pack, prepare
from splitwiper.wire.columns import DTYPES, Array


def remote_scores(
    half_inputs: ClientHalfInputs,
    state: Mapping[str, Tensor],
    inputs: Mapping[str, Array],
    columns: Sequence[Column],
    ask: Callable[[Mapping[str, Tensor]], Scores],
    *,
    group: int = 1,
) -> Scores:
    """Return the server half's outputs on a client's inputs, sent in batches, with noise if configured.

    ``group`` is the number of rows of a typical label, for noise that is scaled to it.
    """
    logits, labels_only = list[Tensor](), False
    for sent in _sendings(half_inputs, state, inputs, columns, group):
        scores = ask(sent)
        logits.append(scores.logits)
        labels_only |= scores.labels_only
    return Scores(scores.labels, torch.cat(logits), scores.codebook, labels_only=labels_only)


def local_scores(
    half_inputs: ClientHalfInputs,
    state: Mapping[str, Tensor],
    inputs: Mapping[str, Array],
    template: ServerHalf,
    model: ModelCopy,
) -> Scores:
    """Compute the same outputs on this machine: nothing leaves the client."""
    device, embedder = _frozen(half_inputs, state)
    half = template.loaded(model.state).to(device)
    logits = []
    with _pinned(half_inputs, device):
        for part in _parts(inputs):
            logits.append(half.logits(embedder(to_device(part, device))).float().cpu())
    return Scores(model.labels, torch.cat(logits), model.codebook)


def _sendings(
    half_inputs: ClientHalfInputs,
    state: Mapping[str, Tensor],
    inputs: Mapping[str, Array],
    columns: Sequence[Column],
    group: int,
) -> Iterator[dict[str, Tensor]]:
    """Yield activations as they are sent: noise follows from an input's content, so asking again reveals nothing new.

    Nothing is pinned while the caller has a batch, so an error there leaves no global state behind.
    """
    fitted, noise = fitted_in(state), half_inputs.config.noise
    encoding = prepare(half_inputs.config.encoding)
    secret = None
    if noise.is_on:
        secret = secure_stream(half_inputs.key, "predict", state_digest(weights_of(state)))
    device, embedder = _frozen(half_inputs, state)
    for part in _parts(inputs):
        with _pinned(half_inputs, device):
            boundary = embedder(to_device(part, device))
            if secret is not None:
                contents = row_contents({name: tensor.numpy() for name, tensor in part.items()})
                boundary = protect(boundary, noise, ByContent(secret, contents), group=group)
            sent = pack(boundary, columns, encoding, fitted)
        yield sent


def _parts(inputs: Mapping[str, Array]) -> Iterator[dict[str, Tensor]]:
    count = len(next(iter(inputs.values())))
    for start in range(0, max(count, 1), BATCH):
        yield {name: torch.from_numpy(array[start : start + BATCH].copy()) for name, array in inputs.items()}


def _frozen(half_inputs: ClientHalfInputs, state: Mapping[str, Tensor]) -> tuple[torch.device, Embedder]:
    device = device_at_hand(half_inputs.config.device)
    with torch.inference_mode(False):
        return device, thaw(half_inputs, state).to(device)


@contextmanager
def _pinned(half_inputs: ClientHalfInputs, device: torch.device) -> Iterator[None]:
    with reproducible(device, half_inputs.config.threads, half_inputs.config.numerics), torch.inference_mode():
        yield


def unmasked(scores: Scores, inputs: Mapping[str, Array], hiding: Hiding, *, without: AbstractSet[Label]) -> Scores:
    """Turn the server's scores of codes into scores of labels, ``without`` those that were forgotten."""
    codebook = hiding.codebook
    if scores.codebook != codebook.id:
        raise DataError("the server's model was trained under another codebook: a rekey is unfinished; call settle.")
    codebook.check_outputs(scores.labels)
    chances = hiding.mode.unmask(torch.softmax(scores.logits.double(), dim=1), inputs, codebook)
    columns, labels = list[int](), list[Label]()
    for number, label in enumerate(codebook.labels):
        if label not in without:
            columns.append(number)
            labels.append(label)
    chosen = chances[:, columns]  # rows × labels that are left
    logits = (chosen / chosen.sum(dim=1, keepdim=True).clamp(min=1e-30)).clamp(min=1e-30).log().float()
    return Scores(tuple(labels), logits, labels_only=scores.labels_only)


class InputForm(Protocol):
    """The form of rows."""

    @property
    def call(self) -> str:
        """How the model takes its inputs."""
        ...

    @property
    def columns(self) -> tuple[Column, ...]:
        """Names, dtypes and shapes of one row."""
        ...

    @property
    def features(self) -> ColumnNames:
        """The names of tables' columns, in the order of the rows learned from."""
        ...


def fitting(inputs: Any, whose: str, form: InputForm) -> dict[str, Array]:
    """Bring inputs into the order and form of the rows learned from.

    Raises:
        DataError: the inputs do not fit; the message says how, and ``whose`` rows were learned from.
    """
    columns = {column.name: column for column in form.columns}
    named, call = as_inputs(inputs, wide="F64" in [column.dtype for column in form.columns])
    learned = f"it learned from {', '.join(map(str, form.columns))} ({form.call})"
    if call != form.call or named.keys() != columns.keys():
        if isinstance(inputs, tuple) and form.call == "one":
            raise DataError(f"{whose}: give the inputs alone, not a tuple of {len(inputs)}: labels are predicted.")
        raise DataError(f"{whose}: inputs are {sorted(named)} ({call}), {learned}.")
    out = {}
    names = column_names(inputs)
    for column in form.columns:
        given = named[column.name]
        now, then = names.get(column.name, ()), form.features.get(column.name, ())
        if now and then:
            given = arranged(given, now, then, whose)
        elif given.shape[1:] == column.shape:
            check_alike(now, then, whose)
        if given.shape[1:] != column.shape:
            if given.shape == column.shape:
                raise DataError(f"{whose}: this is one row without a dimension that counts rows: give x[None].")
            if given.ndim == 2 and len(column.shape) == 1:
                raise DataError(f"{whose}: rows have {given.shape[1]} columns, it learned from {column.shape[0]}.")
            shape = list(given.shape[1:])
            raise DataError(f"{whose}: {column.name} has rows of shape {shape}, {learned}.")
        with np.errstate(all="ignore"):
            out[column.name] = given.astype(DTYPES[column.dtype], copy=False)
        if given.dtype != out[column.name].dtype and not np.array_equal(given, out[column.name]):
            raise DataError(
                f"{whose}: {column.name} is {given.dtype} with values that change as "
                f"{out[column.name].dtype}, and {learned}: scale and convert them as they were for learning."
            )
    return out
