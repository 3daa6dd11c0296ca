"""A split network with all its parts, by the party that holds them, and its predictions."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
from splitwiper.server.training import with_head
from splitwiper.splitting import ServerHalf
from splitwiper.training.cache import to_device
from splitwiper.training.heads import head_for
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
        stems: each client's part before the cut.
        halves: the server's part for each client: one module for all, or a copy for each.
        tails: each client's part behind the server's; empty if the server has the head.
        labels: the labels of the outputs.
        tasks: the task of each client.
        forms: the format of each client's inputs.
        device: the device of all parts.
        threads: as in `Recipe.threads`.
        numerics: as in `Recipe.numerics`.
    """

    stems: dict[str, Embedder]
    halves: dict[str, ServerHalf]
    tails: dict[str, nn.Linear]
    labels: dict[str, tuple[Label, ...]]
    tasks: dict[str, str]
    forms: dict[str, RowForm]
    device: torch.device
    threads: int = 0
    numerics: str = "native"

    def copied(self, *, without: str | None = None) -> Network:
        """Return a copy that shares nothing with the original; ``without`` leaves out one client."""
        names = [name for name in self.stems if name != without]
        memo: dict[int, Any] = {}  # a half shared by all clients stays shared
        return Network(
            {name: copy.deepcopy(self.stems[name]) for name in names},
            {name: copy.deepcopy(self.halves[name], memo) for name in names},
            {name: copy.deepcopy(self.tails[name]) for name in names if name in self.tails},
            {name: self.labels[name] for name in names},
            {name: self.tasks[name] for name in names},
            {name: self.forms[name] for name in names},
            self.device,
            self.threads,
            self.numerics,
        )

    def train(self) -> None:
        """Switch all parts to training mode; predictions leave the parts that they use in evaluation mode."""
        for part in (*self.stems.values(), *self.halves.values(), *self.tails.values()):
            part.train()

    def logits(self, client: str, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return a client's outputs, computed through all parts."""
        features: Tensor = self.halves[client].logits(self.stems[client](inputs))
        return self.tails[client](features) if client in self.tails else features

    def posteriors(self, client: str, inputs: Any) -> Array:
        """Return the probabilities of a client's labels for new inputs.

        Raises:
            NotFoundError: the client has no part of the network.
        """
        found = []
        for logits in self._batches(client, inputs):
            # in double precision, so that a batch on a GPU and one on a processor round alike
            found.append(torch.softmax(logits.double(), dim=1).float().cpu())
        return torch.cat(found).numpy()

    def predict(self, client: str, inputs: Any) -> list[Label]:
        """Return the most probable label of the client's own task, for each row."""
        chances = self.posteriors(client, inputs)
        labels, task = self.labels[client], self.tasks[client]
        own = [code for code, label in enumerate(labels) if label.task == task]
        return [labels[own[code]] for code in chances[:, own].argmax(axis=1)]

    def evaluate(self, tests: Mapping[str, Data]) -> Evaluation:
        """Evaluate each client's network on its own test rows.

        Raises:
            NotFoundError: a client has no part of the network.
        """
        found = {}
        for name in sorted(tests):
            self._check(name)
            rows = as_rows(tests[name], task=self.tasks[name])
            found[name] = score(rows.labels, self.predict(name, rows.packed))
        return Evaluation(found)

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
        for start in range(0, max(1, len(next(iter(named.values())))), _BATCH):
            batch = {k: torch.from_numpy(np.array(v[start : start + _BATCH])) for k, v in named.items()}
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
    """Build a network at its start.

    Args:
        problem: rows, network and settings.
        made: the client halves.
        tails: clients hold the output layer, each for its own labels.
        copies: the server has a copy of its part for each client.
        purpose: the name of the random streams that heads are drawn from.
        labels: the labels of the outputs, by client; by default the labels that clients hold.

    Raises:
        DataError: clients should hold the output layer, but something comes after it.
    """
    config, template = problem.config, problem.halves.server
    device = pick_device(config.server.device)
    held = {name: one.labels if tails else problem.labels for name, one in problem.clients.items()}
    outputs = {name: (labels or held)[name] for name in problem.clients}
    every = problem.labels if tails else next(iter(outputs.values()))
    half = with_head(template, template.state_dict(), every, seed=config.seed, purpose=purpose)
    heads = {}
    if tails:
        first = next(iter(problem.clients.values()))
        _check_last(half, made[first.name].stem, first)
        half = half.without_head()
        heads = {
            name: head_for(
                outputs[name],
                inputs=template.head.in_features,
                seed=config.seed,
                purpose=purpose,
                bias=template.head.bias is not None,
                dtype=template.head.weight.dtype,
            ).to(device)
            for name in problem.clients
        }
    half.to(device)
    return Network(
        {name: copy.deepcopy(made[name].stem).to(device) for name in problem.clients},
        {name: copy.deepcopy(half) if copies else half for name in problem.clients},
        heads,
        outputs,
        {name: one.labels[0].task for name, one in problem.clients.items()},
        {name: RowForm(one.call, one.columns, one.features) for name, one in problem.clients.items()},
        device,
        config.server.threads,
        config.server.numerics,
    )


def _check_last(half: ServerHalf, stem: Embedder, held: Holding) -> None:
    """Refuse a network whose head is not its last step: clients could not hold the head."""
    inputs, _ = held.cache(held.labels).batch(np.arange(1))
    with torch.no_grad():
        sent = stem.cpu().eval()(inputs)
        whole, cut = copy.deepcopy(half).eval().logits(sent), half.head(half.without_head().eval().logits(sent))
    if whole.shape != cut.shape or not torch.allclose(whole, cut, rtol=_CLOSE, atol=_CLOSE):
        raise DataError(
            f"the head {half.head_name!r} is not the last step of this network: it cannot be at the clients, as "
            "U-shaped learning needs it. Return the head's outputs as they are."
        )
