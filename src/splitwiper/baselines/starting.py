"""Where client halves start from: pre-trained as SplitWiper's are (Section 5.1), or from the first weights."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor, nn

from splitwiper.baselines.meters import Cost
from splitwiper.baselines.problem import Holding, Problem
from splitwiper.client import pretrain as training
from splitwiper.client.content import MAC_COLUMN, slice_of
from splitwiper.client.fitted import statistics
from splitwiper.client.local_net import Embedder, Normaliser
from splitwiper.federation.folder import drawn
from splitwiper.loop import finish
from splitwiper.seeding import Stream, seeded_key, state_digest
from splitwiper.wire import Shard

STARTS = ("pretrained", "scratch")


@dataclass(frozen=True, eq=False)
class Start:
    """A client half before split training, ready for it."""

    key: str
    """What it was computed from."""
    stem: Embedder = field(repr=False)
    cost: Cost = field(default_factory=Cost)
    """What pre-training took the client."""


def starts(problem: Problem, start: str, *, known: Mapping[str, Start] | None = None) -> dict[str, Start]:
    """Every client's half at its start.

    Args:
        problem: rows, network and settings.
        start: one of `STARTS`.
        known: starts of an earlier run; those of clients whose rows are the same are taken over, and cost nothing.
    """
    made = {}
    for name, held in problem.clients.items():
        recipe, slices = _recipe(problem, held), _slices(problem, held)
        key = f"{start} {training.final_key(recipe, slices)}"
        if known and name in known and known[name].key == key:
            made[name] = Start(key, known[name].stem)
        elif start == "pretrained":
            made[name] = _pretrained(recipe, slices, key)
        else:
            made[name] = Start(key, _untrained(problem, held))
    return made


def _pretrained(recipe: training.Recipe, slices: Mapping[int, Shard], key: str) -> Start:
    began = time.perf_counter()
    state = finish(training.pretrain(recipe, slices))
    seconds = time.perf_counter() - began
    stem = training.thaw(recipe, state).requires_grad_(True)
    return Start(key, stem, Cost(seconds=seconds, flops=training.operations(recipe, slices)))


def _untrained(problem: Problem, held: Holding) -> Embedder:
    fitted = statistics(held.cache(held.labels)) if problem.config.client.standardise else {}
    half = copy.deepcopy(problem.halves.client_for(held.name))
    half.load_state_dict(first_weights(problem, held.name))
    return Embedder(half, held.call, Normaliser(fitted))


def first_weights(problem: Problem, client: str) -> dict[str, Tensor]:
    """A client half's weights before it saw a row."""
    half: nn.Module = problem.halves.client_for(client)
    if problem.config.client.init == "independent":
        return drawn(half, Stream(problem.config.seed, "client-init", client))
    return {name: tensor.detach().clone() for name, tensor in half.state_dict().items()}


def _recipe(problem: Problem, held: Holding) -> training.Recipe:
    initial = first_weights(problem, held.name)
    return training.Recipe(
        name=held.name,
        seed=problem.config.seed,
        config=problem.config.client,
        key=seeded_key(problem.config.seed, held.name),
        half=problem.halves.client_for(held.name),
        initial=initial,
        initial_digest=state_digest(initial),
        call=held.call,
        names=held.names,
        floats=tuple(c.name for c in held.columns if c.dtype.startswith("F")),
    )


def _slices(problem: Problem, held: Holding) -> dict[int, Shard]:
    """The rows as pre-training takes them, each in the slice that its HMAC names."""
    count = problem.config.client.slices
    places = np.array([slice_of(mac.tobytes(), count) for mac in held.shard.columns[MAC_COLUMN]])
    return {n: held.kept(places == n).shard for n in range(count) if (places == n).any()}
