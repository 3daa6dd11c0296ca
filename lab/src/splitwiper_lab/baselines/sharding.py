"""How SISA divides rows into shards and slices, and which checkpoints survive a forgetting.

Shard and slice of a row follow from its content and the seed only, so that forgetting moves no other row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from splitwiper.client.content import MAC_COLUMN, sort_order
from splitwiper.config.settings import bounded, choice, typed
from splitwiper.seeding import Stream
from splitwiper.wire.columns import Array
from splitwiper_lab.baselines.problem import Holding, Problem
from splitwiper_lab.baselines.whole import Weights

AGGREGATES = ("vote", "mean")


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """How rows are divided, how long constituents train, and how their answers are combined."""

    shards: int
    slices: int
    epochs: int
    aggregate: str

    def __post_init__(self) -> None:
        typed(self)
        for name in ("shards", "slices", "epochs"):
            bounded(self, name, 1, high=10**6)
        choice(self, "aggregate", AGGREGATES)

    @property
    def stage_epochs(self) -> int:
        """Epochs per stage: round(2·epochs / (R + 1)) with R slices; in total about as many row passes as `epochs`.

        >>> Sharding(shards=5, slices=3, epochs=30, aggregate="vote").stage_epochs
        15
        """
        return max(1, round(2 * self.epochs / (self.slices + 1)))


@dataclass(frozen=True, eq=False)
class SisaCheckpoint:
    """A constituent after one of its slices; the last checkpoint is the model."""

    slice: int
    rows: int
    """The number of rows trained on, in this slice and those before."""
    digest: bytes = field(repr=False)
    """The digest of those rows."""
    weights: Weights = field(repr=False)


@dataclass(frozen=True, eq=False)
class SisaStage:
    """The training rows of a constituent up to one slice."""

    shard: int
    slice: int
    masks: Mapping[str, Array]
    """For each client, a mask over its rows."""
    digest: bytes
    rows: int


def planned(problem: Problem, sharding: Sharding) -> dict[int, list[SisaStage]]:
    """Return the stages of every shard: one for each slice that has rows."""
    placed: dict[str, Array] = {}
    filled: set[tuple[int, int]] = set()
    for name in sorted(problem.clients):
        placed[name] = places(problem.clients[name], problem.config.seed, sharding)
        filled.update(zip(*placed[name].tolist(), strict=True))
    plan: dict[int, list[SisaStage]] = {shard: [] for shard in range(sharding.shards)}
    for shard, part in sorted(filled):
        masks, macs = {}, []
        for name, (shards, slices) in placed.items():
            masks[name] = (shards == shard) & (slices <= part)
            macs.append(problem.clients[name].shard.columns[MAC_COLUMN][masks[name]])
        every = np.concatenate(macs)
        # sorted, so that a stage is known by its rows, whoever holds them
        digest = hashlib.sha256(every[sort_order(every)].tobytes()).digest()
        plan[shard].append(SisaStage(shard, part, masks, digest, len(every)))
    return plan


def places(held: Holding, seed: int, sharding: Sharding) -> Array:
    """Return the shard and the slice of each of a client's rows, from content and seed only: 2 × rows."""
    placed = np.empty((2, len(held)), np.int64)
    for row, mac in enumerate(map(np.ndarray.tobytes, held.shard.columns[MAC_COLUMN])):
        placed[0, row] = Stream(seed, "sisa/shard", mac).number % sharding.shards
        placed[1, row] = Stream(seed, "sisa/slice", mac).number % sharding.slices
    return placed


def unchanged(known: Sequence[SisaCheckpoint], stages: Sequence[SisaStage]) -> tuple[SisaCheckpoint, ...]:
    """Return the checkpoints up to the last one whose rows are all present. A digest also covers earlier slices."""
    # equal digests up to slice i mean equal rows in slices 0…i, so every checkpoint up to i is still exact
    there = {(stage.slice, stage.digest) for stage in stages}
    count = 0
    for number, checkpoint in enumerate(known, start=1):
        if (checkpoint.slice, checkpoint.digest) in there:
            count = number
    return tuple(known[:count])
