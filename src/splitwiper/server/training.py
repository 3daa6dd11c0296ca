"""Training of the server half on the cache (Algorithm 1, server part; Algorithm 2, step 3).

The result is a pure function of (manifest content, server settings, root seed, initial weights). Everything that is
fitted to data is refitted on the present manifest: the labels that have an output, the row order, the number of steps.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypedDict, Unpack

import torch
from torch import Tensor, nn

from splitwiper.config import ModelConfig, ServerConfig
from splitwiper.errors import UntrainableError
from splitwiper.seeding import Stream
from splitwiper.splitting import ServerHalf
from splitwiper.splitting.output_layer import empty_linear
from splitwiper.store import ServerStore, ShardRecord, manifest_digest
from splitwiper.switches import set_aside
from splitwiper.training.cache import Cache
from splitwiper.training.lanes import Team
from splitwiper.training.loop import OnEpoch, OnState, OnStep, Span, Training, state_of
from splitwiper.training.output_layer import output_layer_for, rows_of
from splitwiper.training.stepping import State, load_net, net_state
from splitwiper.wire import Column, Label, Shard

Watch = Callable[[int, ServerHalf], None]
"""Called after each epoch with its number and the current half, which it must not change."""
Warm = tuple[Mapping[str, Tensor], Sequence[Label]]
"""The state and the labels of a model to continue from."""
_EVERY = 0.5
"""Seconds between looks at the manifest."""


@dataclass(frozen=True)
class TrainingInputs:
    """Everything that a trained server half is a function of, except numerics.

    Attributes:
        template: the architecture; its weights are not used.
        initial: the initial weights, output layer included.
        shards: the manifest's shards, sorted by client.
        labels: every label that some shard holds: the outputs.
        columns: the columns that cross the cut, in order.
        config: the server's settings.
        seed: the root seed.
        manifest: the manifest's digest, which names the streams.
        model: how another process makes the template; without a factory it cannot.
    """

    template: ServerHalf
    initial: Mapping[str, Tensor]
    shards: Sequence[Shard]
    labels: Sequence[Label]
    columns: Sequence[Column]
    config: ServerConfig
    seed: int
    manifest: str
    model: ModelConfig = field(default_factory=ModelConfig)


@dataclass(frozen=True)
class TrainedServerHalf:
    """A trained server half: its state, and the mean loss of each epoch."""

    state: dict[str, Tensor]
    losses: tuple[float, ...]


class TrainingCalls(TypedDict, total=False):
    """What a training is given besides its inputs; see `Training` for the callbacks."""

    warm: Warm | None
    """A model to continue from, not exactly."""
    on_epoch: OnEpoch | None
    on_state: OnState | None
    on_step: OnStep | None
    """Called now and then; by an engine at least every second."""


class Engine(Protocol):
    """Computes trainings of the server half: in this process, or in many. No computed bit depends on it.

    It is made with ``ranks``, the largest number of processes that may share a training, and its own settings.
    """

    def train(self, inputs: TrainingInputs, folder: Path, **calls: Unpack[TrainingCalls]) -> TrainedServerHalf:
        """Do what `train` does, and call its callbacks in this process.

        Args:
            inputs: what the result is a function of.
            folder: a place for files, which every process that takes part can read. What lies in it was computed from
                clients' rows: it must be erased before this returns or raises.
            calls: callbacks, and the model to continue from.
        """
        ...


class Local:
    """Trains in this process."""

    def train(self, inputs: TrainingInputs, folder: Path, **calls: Unpack[TrainingCalls]) -> TrainedServerHalf:
        """Train the half; nothing is written."""
        return train(inputs, **calls)


class _Logits(nn.Module):
    """The server half as the training loop sees it: tensors of the cut in, one row of logits out."""

    def __init__(self, half: ServerHalf) -> None:
        super().__init__()
        self.body = half

    def forward(self, boundary: Mapping[str, Tensor]) -> Tensor:
        return self.body.logits(boundary)


def train(
    inputs: TrainingInputs,
    *,
    warm: Warm | None = None,
    on_epoch: OnEpoch | None = None,
    on_state: OnState | None = None,
    on_step: OnStep | None = None,
    watch: Watch | None = None,
    team: Team | None = None,
) -> TrainedServerHalf:
    """Train the server half from the federation's initial weights, or, not exactly, from a warm model.

    Callbacks are those of `Training`; ``watch`` is called with the half after each epoch; ``team`` are the processes
    that share the work, each of which makes this call.

    Raises:
        TrainingError: training failed. It is an `UntrainableError` if the rows are at fault.
    """

    def after_epoch(epoch: int, epochs: int, loss: float) -> None:
        if on_epoch:
            on_epoch(epoch, epochs, loss)
        if watch:
            watch(epoch, half.eval())
            half.train()

    # a copy of the template, since training changes it and other trainings start from the same one
    half = _first_half(inputs, warm)
    losses = _training(half, inputs, on_epoch=after_epoch, on_state=on_state, on_step=on_step, team=team).run()
    state = state_of(half)
    _check_finite(state, inputs.initial)
    return TrainedServerHalf(state, losses)


def _check_finite(state: Mapping[str, Tensor], initial: Mapping[str, Tensor]) -> None:
    """Refuse weights and buffers that are no longer finite; batch norm's may overflow while the loss stays finite."""
    for name, tensor in state.items():
        first = initial.get(name)
        broken = ~torch.isfinite(tensor)
        if first is not None and first.shape == tensor.shape:
            broken &= torch.isfinite(first)  # a constant such as a mask may hold infinities from the start
        if broken.any():
            raise UntrainableError(
                f"server training: {name} is not finite at its end, though the loss was. Lower lr, set clip (say 1.0), "
                "or scale the inputs (standardise = true), in a new run; in a run that has learned before, forget the "
                "rows that were added last."
            )


def train_epochs(inputs: TrainingInputs, span: Span) -> State:
    """Compute some epochs of a training from the state before them, and return the state after them.

    Raises:
        DataError: the state does not fit the half.
        TrainingError: the loss stopped being finite.
    """
    newest = deque[State](maxlen=1)
    _training(_first_half(inputs), inputs, on_state=lambda _, state: newest.append(state), span=span).run()
    return newest.pop()


def first_state(inputs: TrainingInputs) -> State:
    """Return the state before the first epoch: initial weights, an output for each label, and an empty optimiser."""
    return net_state(_Logits(_first_half(inputs)))


def weights_in(inputs: TrainingInputs, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights in a state, under their names in a model file; raise `DataError` if it is another half's."""
    half = _first_half(inputs)
    load_net(_Logits(half), state)
    return state_of(half)


def _first_half(inputs: TrainingInputs, warm: Warm | None = None) -> ServerHalf:
    """Return the server half as it is before the first epoch."""
    with set_aside():  # a callback of an earlier step may have set another default device
        return with_output_layer(inputs.template, inputs.initial, inputs.labels, seed=inputs.seed, warm=warm)


def _training(half: ServerHalf, inputs: TrainingInputs, **how: Any) -> Training:
    """Return the training of a half, with callbacks or a span as `Training` takes them."""
    return Training(
        _Logits(half),
        Cache(inputs.shards, inputs.labels, names=[c.name for c in inputs.columns], columns=inputs.columns),
        inputs.config,
        epochs=inputs.config.epochs,
        stream=Stream(inputs.seed, "server", "", bytes.fromhex(inputs.manifest)),
        lanes=inputs.config.lanes,
        what="server training",
        **how,
    )


def with_output_layer(
    template: ServerHalf,
    initial: Mapping[str, Tensor],
    labels: Sequence[Label],
    *,
    seed: int,
    warm: Warm | None = None,
    purpose: str = "head",
) -> ServerHalf:
    """Return a server half at its start: initial weights, and an output layer with a row for each label.

    The rows are drawn from streams that ``purpose`` names.
    """
    half = copy.deepcopy(template)
    first, known = initial, None
    layer = half.output_layer
    width, bias, dtype = layer.in_features, layer.bias is not None, layer.weight.dtype
    if warm is not None:
        first, old_labels = warm
        half.set_output_layer(empty_linear(width, len(old_labels), bias=bias, dtype=dtype))
        half.load_state_dict(first)
        known = rows_of(half.output_layer, old_labels)
    layer = output_layer_for(labels, inputs=width, seed=seed, purpose=purpose, bias=bias, dtype=dtype, known=known)
    half.set_output_layer(layer)
    # the first weights' own layer is for other labels, and gives way to the new one
    prefix = f"{half.output_layer_name}."
    start = {name: tensor for name, tensor in first.items() if not name.startswith(prefix)}
    half.load_state_dict({**start, **layer.state_dict(prefix=prefix)})
    return half


class ShardsChanged(Exception):
    """A shard that is trained on was replaced or erased."""


class StopIfShardsChange:
    """Stops a training once the manifest is no longer what it trains on, as a `splitwiper.training.loop.OnStep`.

    Without it, a training that takes days, on a client's enormous shard, would go on after that client was evicted, and
    nobody's request would be settled before its end.
    """

    def __init__(self, store: ServerStore, shards: Sequence[ShardRecord]) -> None:
        self._store, self._manifest, self._next = store, manifest_digest(shards), 0.0

    def __call__(self) -> None:
        """Look, unless that was done just now, and raise `ShardsChanged` if the manifest has changed."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            if self._store.manifest() != self._manifest:
                raise ShardsChanged
