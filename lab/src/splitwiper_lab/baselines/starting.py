"""The start of client halves: pre-trained as SplitWiper's are (Section 5.1), or the first weights."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor, nn

from splitwiper.client import pretrain
from splitwiper.client.content import MAC_COLUMN, slice_of
from splitwiper.client.fitted import statistics
from splitwiper.client.local_net import Embedder, Normaliser
from splitwiper.federation.folder import drawn
from splitwiper.seeding import Stream, seeded_key, state_digest
from splitwiper.training.loop import finish
from splitwiper.wire import Shard
from splitwiper_lab.baselines.meters import Cost
from splitwiper_lab.baselines.problem import Holding, Problem

STARTS = ("pretrained", "scratch")


@dataclass(frozen=True, eq=False)
class Start:
    """A client half ready for split training."""

    key: str
    """Identifies what it was computed from: halves with the same key are the same."""
    stem: Embedder = field(repr=False)
    cost: Cost = field(default_factory=Cost)
    """The client's cost of pre-training."""
    checkpoints: Mapping[str, pretrain.Checkpoint] = field(default_factory=dict, repr=False)
    """States after slices, so that a client can start again without some rows."""


def starts(problem: Problem, start: str, *, known: Mapping[str, Start] | None = None) -> dict[str, Start]:
    """Return every client's half at its start, one of `STARTS`.

    Of ``known`` starts of an earlier run, those of clients whose rows are the same are reused, at no cost.
    """
    made = {}
    for name, held in problem.clients.items():
        half_inputs, slices = _half_inputs(problem, held), _slices(problem, held)
        # the key covers rows, settings, seed and first weights: equal keys mean equal halves, bit for bit
        key = f"{start} {pretrain.final_key(half_inputs, slices)}"
        if known and name in known and known[name].key == key:
            made[name] = replace(known[name], cost=Cost())
        elif start == "pretrained":
            made[name] = _pretrained(half_inputs, slices, key, known.get(name) if known else None)
        else:
            made[name] = Start(key, _untrained(problem, held))
    return made


class _CheckpointsInMemory:
    """Checkpoints in memory, and the last slice that was loaded from them."""

    def __init__(self, kept: Mapping[str, pretrain.Checkpoint]) -> None:
        self.kept, self.resumed = dict(kept), -1

    def load(self, number: int, key: str) -> pretrain.Checkpoint | None:
        checkpoint = self.kept.get(key)
        self.resumed = number if checkpoint else self.resumed
        return checkpoint

    def save(self, number: int, key: str, checkpoint: pretrain.Checkpoint) -> None:
        self.kept[key] = checkpoint


def _pretrained(
    half_inputs: pretrain.ClientHalfInputs, slices: Mapping[int, Shard], key: str, before: Start | None
) -> Start:
    checkpoints = _CheckpointsInMemory(before.checkpoints if before else {})
    began = time.perf_counter()
    state = finish(pretrain.pretrain(half_inputs, slices, checkpoints=checkpoints))
    seconds = time.perf_counter() - began
    stem = pretrain.thaw(half_inputs, state)
    # SplitWiper freezes a pre-trained half; here it is trained on, except for what the network itself froze
    for name, parameter in stem.body.named_parameters():
        parameter.requires_grad_(half_inputs.half.get_parameter(name).requires_grad)
    flops = pretrain.operations(half_inputs, slices, after=checkpoints.resumed)
    return Start(key, stem, Cost(seconds=seconds, flops=flops), checkpoints.kept)


def _untrained(problem: Problem, held: Holding) -> Embedder:
    fitted = statistics(held.cache(held.labels)) if problem.config.client.standardise else {}
    half = copy.deepcopy(problem.halves.client_for(held.name))
    half.load_state_dict(first_weights(problem, held.name))
    return Embedder(half, held.call, Normaliser(fitted))


def first_weights(problem: Problem, client: str) -> dict[str, Tensor]:
    """Return a client half's weights before any training."""
    half: nn.Module = problem.halves.client_for(client)
    if problem.config.client.init == "independent":
        return drawn(half, Stream(problem.config.seed, "client-init", client))
    return {name: tensor.detach().clone() for name, tensor in half.state_dict().items()}


def _half_inputs(problem: Problem, held: Holding) -> pretrain.ClientHalfInputs:
    initial = first_weights(problem, held.name)
    return pretrain.ClientHalfInputs(
        name=held.name,
        seed=problem.config.seed,
        config=problem.config.client,
        key=seeded_key(problem.config.seed, held.name),
        half=problem.halves.client_for(held.name),
        initial=initial,
        initial_digest=state_digest(initial),
        call=held.call,
        names=held.names,
        floats=tuple(column.name for column in held.columns if column.dtype.startswith("F")),
    )


def _slices(problem: Problem, held: Holding) -> dict[int, Shard]:
    """Return the rows as slices for pre-training; a row's slice follows from its HMAC."""
    count = problem.config.client.slices
    places = np.array([slice_of(mac.tobytes(), count) for mac in held.shard.columns[MAC_COLUMN]])
    return {number: held.kept(places == number).shard for number in np.unique(places).tolist()}
