"""The unsplit network: both halves as one, trained where all rows are. Central baselines and shadow models use it.

Training is a pure function of (rows, recipe, epochs, stream, first weights, labels), and of the numerics that
`splitwiper.numerics.fingerprint` lists. Every call starts with a new optimiser.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from splitwiper.client.embed import BATCH
from splitwiper.client.fitted import statistics
from splitwiper.client.local_net import Embedder, Normaliser
from splitwiper.client.prediction import fitting
from splitwiper.data.tables import ColumnNames
from splitwiper.errors import DataError
from splitwiper.numerics import device_at_hand, reproducible
from splitwiper.seeding import Stream
from splitwiper.server.training import with_output_layer
from splitwiper.splitting import Halves, ServerHalf
from splitwiper.training.cache import Cache, to_device
from splitwiper.training.loop import OnEpoch, Training, state_of
from splitwiper.wire import Column, Label
from splitwiper.wire.labels import in_order
from splitwiper_lab.baselines.problem import Holding, Problem


class Whole(nn.Module):
    """Both halves as one network: takes the model's inputs by name, returns logits."""

    def __init__(self, embedder: Embedder, server: ServerHalf) -> None:
        super().__init__()
        self.embedder = embedder
        self.server = server

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return one row of logits for each row of inputs."""
        return self.server.logits(self.embedder(inputs))


@dataclass(frozen=True, eq=False)
class Weights:
    """A trained unsplit network: its tensors on the CPU, and everything needed to use it."""

    client: dict[str, Tensor] = field(repr=False)
    server: dict[str, Tensor] = field(repr=False)
    fitted: dict[str, tuple[Tensor, ...]] = field(repr=False)
    """Shift and scale of the inputs that are standardised."""
    labels: tuple[Label, ...]
    """The labels of the outputs."""
    call: str
    columns: tuple[Column, ...]
    features: ColumnNames
    losses: tuple[float, ...] = ()

    @property
    def state(self) -> dict[str, Tensor]:
        """All tensors by name."""
        tensors = {}
        for half, state in (("client", self.client), ("server", self.server)):
            for name, tensor in state.items():
                tensors[f"{half}.{name}"] = tensor
        for name, pair in self.fitted.items():
            for number, tensor in enumerate(pair):
                tensors[f"input.{name}.{number}"] = tensor
        return tensors

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.state.values())


def poolable(halves: Halves, rows: Sequence[Holding]) -> Holding:
    """Check that clients' rows can be pooled, and return the first client as representative of their form.

    Raises:
        DataError: there are no rows, their inputs differ in form, or some client has its own half.
    """
    if not sum(map(len, rows)):
        raise DataError("there are no rows to train on; give some client rows.")
    first = rows[0]
    for held in rows:
        if held.name in halves.clients:
            raise DataError(
                f"client {held.name!r} brings a client half of its own, so its rows cannot be pooled with others'; "
                "leave it out, or give all clients the same half."
            )
        if (held.call, held.columns) != (first.call, first.columns):
            raise DataError(
                f"rows of {held.name!r} are {_form(held)}, those of {first.name!r} {_form(first)}: they "
                "cannot be pooled; bring them into one form."
            )
        if held.features != first.features:
            raise DataError(
                f"tables of {held.name!r} and {first.name!r} have other columns, or in another order: they cannot be "
                "pooled; give all tables the same columns in the same order."
            )
    return first


def train_whole(
    problem: Problem,
    rows: Sequence[Holding],
    *,
    stream: Stream,
    epochs: int | None = None,
    labels: Sequence[Label] | None = None,
    before: Weights | None = None,
    what: str = "central training",
    on_epoch: OnEpoch | None = None,
) -> Weights:
    """Train the unsplit network on pooled rows, with the server half's recipe.

    Args:
        problem: the network, its first weights, and settings.
        rows: the rows to train on, by client, concatenated in this order.
        stream: the random stream of row order and dropout.
        epochs: the number of epochs; by default the server's.
        labels: the labels of the outputs; by default the labels that some row has.
        before: weights to continue from, instead of the first ones. Labels that they do not know get new outputs.
        what: the name of this training in messages.
        on_epoch: called after each epoch.

    Raises:
        DataError: the rows cannot be pooled, or have labels that are not among those given.
        TrainingError: the loss stopped being finite, or a layer could not take a batch.
    """
    recipe = problem.config.server
    like = poolable(problem.halves, rows)
    present = in_order(chain.from_iterable(held.labels for held in rows))
    outputs = tuple(present if labels is None else labels)
    for label in present:
        if label not in outputs:
            raise DataError(f"rows have the label {label.text}, which is not among the labels given; add it.")
    cache = Cache([held.shard for held in rows], outputs, names=like.names)
    fitted = statistics(cache) if problem.config.client.standardise else {}
    net = _start(problem, like.call, outputs, fitted, before)
    count = recipe.epochs if epochs is None else epochs
    losses = Training(net, cache, recipe, epochs=count, stream=stream, what=what, on_epoch=on_epoch).run()
    client, server = state_of(net.embedder.body), state_of(net.server)
    return Weights(client, server, fitted, outputs, like.call, like.columns, like.features, losses)


def _start(
    problem: Problem,
    call: str,
    labels: Sequence[Label],
    fitted: Mapping[str, tuple[Tensor, ...]],
    before: Weights | None,
) -> Whole:
    """Return the network before training, at its first weights or at ``before``; the head has an output per label."""
    halves = problem.halves
    client = copy.deepcopy(halves.client)
    if before is not None:
        client.load_state_dict(before.client)
    server = with_output_layer(
        halves.server,
        halves.server.state_dict(),
        labels,
        seed=problem.config.seed,
        warm=(before.server, before.labels) if before is not None else None,
    )
    return Whole(Embedder(client, call, Normaliser(fitted)), server)


def operations(problem: Problem, rows: Holding) -> int:
    """Return the floating-point operations of training on one row for one epoch, forward and backward."""
    # a few rows suffice: a network's operations are proportional to its rows
    few = rows.cache(rows.labels)
    inputs, codes = few.batch(np.arange(min(len(few), 8)))
    net = _start(problem, rows.call, rows.labels, {}, None).eval()
    with FlopCounterMode(display=False) as counter:
        functional.cross_entropy(net(inputs), codes).backward()
    return int(counter.get_total_flops()) // len(codes)


def loaded(problem: Problem, weights: Weights) -> Whole:
    """Return a trained network, ready to predict."""
    client = copy.deepcopy(problem.halves.client)
    client.load_state_dict(weights.client)
    embedder = Embedder(client, weights.call, Normaliser(weights.fitted))
    return Whole(embedder, problem.halves.server.loaded(weights.server)).eval().requires_grad_(False)


def answering(problem: Problem, weights: Weights) -> Callable[[Any], Tensor]:
    """Return a function from new inputs, in `Federation.predict`'s form, to logits (rows × labels, on the CPU).

    The function raises DataError for inputs whose form differs from the training data's.
    """
    recipe = problem.config.server
    device = device_at_hand(recipe.device)
    net = loaded(problem, weights).to(device)

    def logits(inputs: Any) -> Tensor:
        arrays = fitting(inputs, "the network", weights)
        count = len(next(iter(arrays.values())))
        batches = []
        with reproducible(device, recipe.threads, recipe.numerics), torch.inference_mode():
            for start in range(0, max(count, 1), BATCH):
                part = {name: torch.from_numpy(array[start : start + BATCH].copy()) for name, array in arrays.items()}
                batches.append(net(to_device(part, device)).float().cpu())
        return torch.cat(batches)

    return logits


def _form(held: Holding) -> str:
    return f"{', '.join(map(str, held.columns))} ({held.call})"
