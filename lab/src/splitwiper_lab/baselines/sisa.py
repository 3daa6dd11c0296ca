"""SISA (Bourtoule et al., S&P 2021): Sharded, Isolated, Sliced, Aggregated training, with all rows in one place.

The reference for the cost of exact unlearning where rows may be pooled, which split learning avoids.

* **Sharded.** A row belongs to one shard and one slice, see `sharding`.
* **Isolated.** Each shard has its own model, a *constituent*: the unsplit network, from the same first weights.
* **Sliced.** Stage i trains on slices 0…i from where the previous stage ended, as `splitwiper.client.pretrain` does,
  and ends in a checkpoint. The optimiser is reset at each stage, labels seen for the first time get new outputs, and
  inputs are standardised, where that is enabled, by the rows seen so far.
* **Aggregated.** The constituents' answers are combined by vote, or by the mean of their probabilities.

A constituent is a pure function of (its rows, settings, seed, first weights). Forgetting returns to the last checkpoint
that never saw a forgotten row, and gives bit for bit the result of training without those rows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splitwiper.data.rows import Data, as_rows
from splitwiper.errors import ConfigError, DataError, TrainingError
from splitwiper.federation.evaluate import Evaluation, score
from splitwiper.seeding import Stream
from splitwiper.training.loop import OnEpoch
from splitwiper.wire import Label
from splitwiper.wire.columns import Array
from splitwiper.wire.labels import in_order
from splitwiper_lab.baselines.meters import Cost
from splitwiper_lab.baselines.problem import Forgetting, Problem
from splitwiper_lab.baselines.sharding import Sharding, SisaCheckpoint, SisaStage, planned, unchanged
from splitwiper_lab.baselines.whole import Weights, answering, operations, poolable, train_whole


@dataclass(frozen=True)
class SisaCost(Cost):
    """The costs of learning or unlearning. Operations are counted for a few rows, and scaled to all rows and epochs.

    Nothing is sent: bringing the rows to one place is not counted. `storage` is the bytes of all checkpoints that are
    kept, including the models themselves, which are the last checkpoints.

    Attributes:
        row_epochs: rows trained on, summed over epochs.
        retrained: shards that were trained, from the start or from a later slice.
        reused: shards whose model was reused unchanged.
        skipped: shards without a model: with no row, or with one row where a layer needs at least two.
    """

    row_epochs: int = 0
    retrained: tuple[int, ...] = ()
    reused: tuple[int, ...] = ()
    skipped: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Sisa:
    """Constituent models by shard. `unlearn` returns a new instance; discard the old one: it has the forgotten rows."""

    problem: Problem
    """The rows it was trained on."""
    sharding: Sharding
    shards: Mapping[int, tuple[SisaCheckpoint, ...]] = field(repr=False)
    """Each constituent's checkpoints, in the order of its slices; only shards that have a model."""
    cost: SisaCost

    @property
    def models(self) -> dict[int, Weights]:
        """Each shard's trained constituent."""
        return {shard: checkpoints[-1].weights for shard, checkpoints in self.shards.items()}

    @property
    def labels(self) -> tuple[Label, ...]:
        """Every label that some constituent knows."""
        return in_order(chain.from_iterable(weights.labels for weights in self.models.values()))

    @property
    def state(self) -> dict[str, Tensor]:
        """Every tensor of every checkpoint, as ``shard/slice/name``."""
        tensors = {}
        for shard, checkpoints in self.shards.items():
            for checkpoint in checkpoints:
                for name, tensor in checkpoint.weights.state.items():
                    tensors[f"{shard}/{checkpoint.slice}/{name}"] = tensor
        return tensors

    def unlearn(self, forgetting: Forgetting, *, on_epoch: OnEpoch | None = None) -> Sisa:
        """Forget rows: return what `sisa` gives without them, under the same numerics, bit for bit.

        Only shards that hold a forgotten row are trained, from the first slice that changed. Fewer rows than shards may
        be left.

        Raises:
            RequestError: the request is not about these rows, or nothing would be left.
        """
        return _trained(self.problem.without(forgetting), self.sharding, self.shards, on_epoch)

    def posteriors(self, inputs: Any) -> tuple[Array, tuple[Label, ...]]:
        """Return the mean of the constituents' probabilities (rows × labels), and the labels.

        A constituent contributes nothing to labels it does not know. With ``aggregate="vote"``, `predict` may return
        another label than the most probable one here.
        """
        chances, labels = self._chances(inputs)
        return _mean(chances), labels

    def predict(self, inputs: Any, *, task: str | None = None) -> list[Label]:
        """Return the label of each input; with a task, one of that task's labels, if there are any."""
        chances, labels = self._chances(inputs)
        asked = [code for code, label in enumerate(labels) if task in (None, label.task)] or range(len(labels))
        chances = chances[:, :, asked]
        best = by_vote(chances) if self.sharding.aggregate == "vote" else _mean(chances).argmax(axis=1)
        return [labels[asked[place]] for place in best]

    def evaluate(self, test_sets: Mapping[str, Data], *, tasks: Mapping[str, str] | None = None) -> Evaluation:
        """Score the aggregate on each client's test set, (inputs, labels).

        A client that has a task of its own gets only labels of its task.
        """
        scores = {}
        for name, data in test_sets.items():
            task = (tasks or {}).get(name, "")
            rows = as_rows(data, task=task)
            scores[name] = score(rows.labels, self.predict(rows.packed, task=task))
        return Evaluation(scores)

    def _chances(self, inputs: Any) -> tuple[Array, tuple[Label, ...]]:
        """Return probabilities (constituents × rows × labels), -1 where a constituent does not know the label."""
        # constituents differ in labels, so each table is spread over the labels of all
        labels, tables = self.labels, []
        for weights in self.models.values():
            logits = answering(self.problem, weights)(inputs)
            table = np.full((len(logits), len(labels)), -1.0)
            table[:, list(map(labels.index, weights.labels))] = torch.softmax(logits.double(), dim=1).numpy()
            tables.append(table)
        return np.stack(tables), labels


def sisa(
    problem: Problem,
    *,
    shards: int = 5,
    slices: int = 1,
    epochs: int | None = None,
    aggregate: str = "vote",
    on_epoch: OnEpoch | None = None,
) -> Sisa:
    """Train a constituent on each shard of all clients' rows, with the server's recipe.

    There are ``slices`` parts of a shard, with a checkpoint after each. ``epochs`` are passes over a shard's rows, or
    their equivalent with slices (see `Sharding.stage_epochs`); by default the server's. ``aggregate`` is 'vote', for
    the label that most constituents answer, ties broken by the sum of their probabilities, or 'mean', for the label
    with the largest mean probability. ``on_epoch`` is told of progress over all constituents.

    Raises:
        ConfigError: a setting is out of range, or there are more shards than rows.
        DataError: the clients' rows cannot be pooled.
        TrainingError: the loss stopped being finite, or a layer could not take a batch.
    """
    wanted = problem.config.server.epochs if epochs is None else epochs
    sharding = Sharding(shards=shards, slices=slices, epochs=wanted, aggregate=aggregate)
    rows = sum(map(len, problem.clients.values()))
    if shards > rows:
        raise ConfigError(f"shards = {shards}, but there are {rows} rows; take fewer shards.")
    return _trained(problem, sharding, {}, on_epoch)


def by_vote(chances: Array) -> Array:
    """Return, for each row, the column that most constituents rank first; ties go to the largest sum of probabilities.

    Chances are constituents × rows × labels, negative where a constituent does not know the label. A constituent that
    knows none of the labels abstains.

    >>> by_vote(np.array([[[0.6, 0.4]], [[0.6, 0.4]], [[0.0, 1.0]]])), by_vote(np.array([[[0.6, 0.4]], [[0.3, 0.7]]]))
    (array([0]), array([1]))
    """
    votes = np.zeros(chances.shape[1:])  # rows × labels
    for constituent in chances:
        if (constituent >= 0).any():
            votes[np.arange(len(constituent)), constituent.argmax(axis=1)] += 1
    most = votes == votes.max(axis=1, keepdims=True)
    # the sum decides between labels with most votes, and only between them: all others get -1
    best: Array = np.where(most, chances.clip(min=0).sum(axis=0), -1).argmax(axis=1)
    return best


def _mean(chances: Array) -> Array:
    mean: Array = chances.clip(min=0).mean(axis=0)
    return mean


def _trained(
    problem: Problem, sharding: Sharding, known: Mapping[int, tuple[SisaCheckpoint, ...]], on_epoch: OnEpoch | None
) -> Sisa:
    """Train every stage that has no checkpoint in ``known``."""
    poolable(problem.halves, list(problem.clients.values()))
    began = time.perf_counter()
    plan = planned(problem, sharding)
    made, todo = {}, []
    for shard, stages in plan.items():
        made[shard] = unchanged(known.get(shard, ()), stages)
        reached = made[shard][-1].slice if made[shard] else -1
        todo += [stage for stage in stages if stage.slice > reached]
    epochs, row_epochs = sharding.stage_epochs, 0
    for number, stage in enumerate(todo):
        # `done` is bound now: a closure would see the number of the stage that comes last
        def after_epoch(epoch: int, _all: int, loss: float, done: int = number * epochs) -> None:
            if on_epoch:
                on_epoch(done + epoch, len(todo) * epochs, loss)

        # stages of a shard follow each other in `todo`, so the last checkpoint is of the slice before, if that gave one
        before = made[stage.shard][-1].weights if made[stage.shard] else None
        weights = _train(problem, stage, epochs, before, after_epoch)
        if weights is not None:
            made[stage.shard] += (SisaCheckpoint(stage.slice, stage.rows, stage.digest, weights),)
            row_epochs += epochs * stage.rows
    shards = {shard: checkpoints for shard, checkpoints in made.items() if checkpoints}
    if not shards:
        raise DataError("no shard has rows enough for the network's layers; take fewer shards, or give more rows.")
    retrained = {stage.shard for stage in todo} & set(shards)
    checkpoints = chain.from_iterable(shards.values())
    cost = SisaCost(
        seconds=time.perf_counter() - began,
        flops=operations(problem, next(iter(problem.clients.values()))) * row_epochs,
        storage=sum(checkpoint.weights.nbytes for checkpoint in checkpoints),
        row_epochs=row_epochs,
        retrained=tuple(sorted(retrained)),
        reused=tuple(sorted(set(shards) - retrained)),
        skipped=tuple(sorted(set(made) - set(shards))),
    )
    return Sisa(problem, sharding, shards, cost)


def _train(
    problem: Problem, stage: SisaStage, epochs: int, before: Weights | None, on_epoch: OnEpoch
) -> Weights | None:
    """Train one stage of a constituent; return None for a single row that some layer cannot process."""
    rows = [problem.clients[name].kept(mask) for name, mask in stage.masks.items() if mask.any()]
    name = f"shard {stage.shard}"
    stream = Stream(problem.config.seed, f"sisa/{stage.slice}", name, stage.digest)
    try:
        return train_whole(
            problem, rows, stream=stream, epochs=epochs, before=before, what=f"SISA, {name}", on_epoch=on_epoch
        )
    except TrainingError as fault:
        if stage.rows > 1 or not isinstance(fault.__cause__, ValueError):  # from a layer, not a non-finite loss
            raise
        return None
