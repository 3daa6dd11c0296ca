"""A split network with all its parts, by the party that holds them, and its predictions."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from splitwiper.client.local_net import Embedder
from splitwiper.client.prediction import fitting
from splitwiper.data.rows import Data, as_rows
from splitwiper.data.tables import ColumnNames
from splitwiper.errors import DataError, NotFoundError, nearest
from splitwiper.federation import Evaluation
from splitwiper.federation.evaluate import score
from splitwiper.numerics import pick_device, reproducible
from splitwiper.server.training import with_output_layer
from splitwiper.splitting import ServerHalf
from splitwiper.training.cache import to_device
from splitwiper.training.output_layer import output_layer_for
from splitwiper.wire import Column, Label
from splitwiper.wire.columns import Array
from splitwiper_lab.baselines.problem import Holding, Problem
from splitwiper_lab.baselines.starting import Start

_BATCH = 512
_CLOSE = 1e-4
"""The tolerance for outputs that may differ only by rounding."""


@dataclass(frozen=True)
class RowForm:
    """How a client's rows are passed to its half."""

    call: str
    columns: tuple[Column, ...]
    features: ColumnNames


@dataclass(frozen=True, eq=False)
class Network:
    """The parts of a split network, by client name.

    Attributes:
        device: the device of all parts.
        threads: as in `Recipe.threads`.
        numerics: as in `Recipe.numerics`.
        stems: each client's part before the cut.
        halves: the server's part for each client: one module for all, or a copy for each.
        tails: each client's part behind the server's; empty if the server has the head.
        labels: the labels of the outputs.
        tasks: the task of each client.
        forms: the format of each client's inputs.
    """

    device: torch.device
    threads: int
    numerics: str
    stems: dict[str, Embedder] = field(default_factory=dict)
    halves: dict[str, ServerHalf] = field(default_factory=dict)
    tails: dict[str, nn.Linear] = field(default_factory=dict)
    labels: dict[str, tuple[Label, ...]] = field(default_factory=dict)
    tasks: dict[str, str] = field(default_factory=dict)
    forms: dict[str, RowForm] = field(default_factory=dict)

    def copied(self, *, without: str | None = None) -> Network:
        """Return a copy that shares nothing with the original; ``without`` leaves out one client."""
        network = copy.deepcopy(self)  # a half that clients share stays shared
        parts: tuple[dict[str, Any], ...] = (network.stems, network.halves, network.tails)
        if without is not None:
            for by_client in (*parts, network.labels, network.tasks, network.forms):
                by_client.pop(without, None)
        return network

    def train(self) -> None:
        """Switch all parts to training mode; predictions leave the parts that they use in evaluation mode."""
        for part in (*self.stems.values(), *self.halves.values(), *self.tails.values()):
            part.train()

    def logits(self, client: str, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return a client's outputs, computed through all parts."""
        # rows × features if clients hold the head, else rows × labels
        features: Tensor = self.halves[client].logits(self.stems[client](inputs))
        return self.tails[client](features) if client in self.tails else features

    def posteriors(self, client: str, inputs: Any) -> Array:
        """Return the probabilities of a client's labels for new inputs.

        Raises:
            NotFoundError: the client has no part of the network.
        """
        posteriors = []
        for logits in self._batches(client, inputs):
            # in double precision, so that a batch on a GPU and one on a processor round alike
            posteriors.append(torch.softmax(logits.double(), dim=1).float().cpu())
        return torch.cat(posteriors).numpy()

    def predict(self, client: str, inputs: Any) -> list[Label]:
        """Return the most probable label of the client's own task, for each row."""
        chances = self.posteriors(client, inputs)
        labels, task = self.labels[client], self.tasks[client]
        # answers are about the own task only, as SplitWiper's are: another task's label would always be wrong
        own = [code for code, label in enumerate(labels) if label.task == task]
        return [labels[own[code]] for code in chances[:, own].argmax(axis=1)]

    def evaluate(self, tests: Mapping[str, Data]) -> Evaluation:
        """Evaluate each client's network on its own test rows.

        Raises:
            NotFoundError: a client has no part of the network.
        """
        scores = {}
        for name in sorted(tests):
            self._check(name)
            rows = as_rows(tests[name], task=self.tasks[name])
            scores[name] = score(rows.labels, self.predict(name, rows.packed))
        return Evaluation(scores)

    def _check(self, client: str) -> None:
        if client not in self.stems:
            hint = nearest(client, self.stems) or f" Clients are {', '.join(self.stems)}."
            raise NotFoundError(f"there is no client {client!r} in this network.{hint}")

    def _batches(self, client: str, inputs: Any) -> Iterator[Tensor]:
        self._check(client)
        named = fitting(inputs, f"client {client!r}", self.forms[client])
        self.stems[client].eval()
        self.halves[client].eval()
        if client in self.tails:
            self.tails[client].eval()
        # one batch at least, so that no inputs give a matrix without rows rather than nothing
        for start in range(0, max(1, len(next(iter(named.values())))), _BATCH):
            batch = {name: torch.from_numpy(np.array(rows[start : start + _BATCH])) for name, rows in named.items()}
            with reproducible(self.device, self.threads, self.numerics), torch.no_grad():
                logits = self.logits(client, to_device(batch, self.device))
            yield logits


def build(
    problem: Problem,
    made: Mapping[str, Start],
    *,
    tails: bool,
    copies: bool,
    purpose: str = "head",
    labels: Mapping[str, tuple[Label, ...]] | None = None,
) -> Network:
    """Build a network at its start, from client halves that were made before.

    With ``tails``, clients hold the output layer, each for its own labels; with ``copies``, the server has a copy of
    its part for each client. ``purpose`` names the random streams that heads are drawn from. ``labels`` are the
    outputs' labels by client; by default those that clients hold.

    Raises:
        DataError: clients should hold the output layer, but something comes after it.
    """
    template, recipe, seed = problem.halves.server, problem.config.server, problem.config.seed
    network = Network(pick_device(recipe.device), recipe.threads, recipe.numerics)
    every, first = problem.labels, next(iter(problem.clients.values()))
    outputs = every if tails or labels is None else labels[first.name]
    half = with_output_layer(template, template.state_dict(), outputs, seed=seed, purpose=purpose)
    if tails:
        _check_last(half, made[first.name].stem, first)
        half = half.without_output_layer()
    half.to(network.device)
    for name, held in problem.clients.items():
        own = held.labels if tails else every
        network.labels[name] = own if labels is None else labels[name]
        network.stems[name] = copy.deepcopy(made[name].stem).to(network.device)
        network.halves[name] = copy.deepcopy(half) if copies else half
        network.tasks[name] = held.labels[0].task
        network.forms[name] = RowForm(held.call, held.columns, held.features)
        if tails:
            head = output_layer_for(
                network.labels[name],
                inputs=template.output_layer.in_features,
                seed=seed,
                purpose=purpose,
                bias=template.output_layer.bias is not None,
                dtype=template.output_layer.weight.dtype,
            )
            network.tails[name] = head.to(network.device)
    return network


def _check_last(half: ServerHalf, stem: Embedder, held: Holding) -> None:
    """Refuse a network whose head is not its last step: clients could not hold the head."""
    inputs, _ = held.cache(held.labels).batch(np.arange(1))
    # outputs without the head, passed through the head, are the outputs with it only if nothing comes after the head
    with torch.no_grad():
        sent = stem.cpu().eval()(inputs)
        whole = copy.deepcopy(half).eval().logits(sent)
        cut = half.output_layer(half.without_output_layer().eval().logits(sent))
    if whole.shape != cut.shape or not torch.allclose(whole, cut, rtol=_CLOSE, atol=_CLOSE):
        raise DataError(
            f"the head {half.output_layer_name!r} is not the last step of this network: it cannot be at the clients, "
            "as U-shaped learning needs it. Return the head's outputs as they are."
        )
