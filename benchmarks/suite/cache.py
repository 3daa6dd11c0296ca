"""An epoch of a small server half from the cache on disk, against the same loop on arrays in memory.

The page cache is warm. Pairs alternate in order, and the ratio is taken within each. A plain loop written by hand on
one tensor in memory is timed for comparison.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.harness import Check, Result
from benchmarks.rows import COLUMN, Narrow, open_cache, train, write_cache
from splitwiper.config import ServerConfig
from splitwiper.wire import Shard

TARGET = 0.95


def run(*, quick: bool) -> Iterator[Result]:
    """Time the pairs."""
    size, shards, pairs = (8_000_000, 5, 2) if quick else (1_200_000_000, 5, 7)
    recipe = ServerConfig(batch=256, lr=0.01)
    with tempfile.TemporaryDirectory(prefix="splitwiper-") as folder:
        rows = write_cache(Path(folder), size, shards=shards)
        on_disk = open_cache(Path(folder))
        in_memory = [_copied(shard) for shard in on_disk]
        inputs = torch.from_numpy(np.concatenate([shard.columns[COLUMN.name] for shard in on_disk]))
        labels = torch.from_numpy(np.concatenate([shard.codes for shard in on_disk]).astype(np.int64))
        ways: dict[str, Callable[[], None]] = {
            "disk": lambda: train(Narrow(), on_disk, recipe),
            "memory": lambda: train(Narrow(), in_memory, recipe),
            "by_hand": lambda: _by_hand(inputs, labels, recipe),
        }
        for way in ways.values():  # the page cache, the allocator and the libraries are warm after this
            way()
        seconds = [_timed(ways, number) for number in range(pairs)]
    speed = [s["memory"] / s["disk"] for s in seconds]
    by_hand = [s["by_hand"] / s["disk"] for s in seconds]
    yield Result(
        parameters={
            "bytes": rows * COLUMN.width,
            "rows": rows,
            "shards": shards,
            "batch": recipe.batch,
            "pairs": pairs,
            "threads": torch.get_num_threads(),
        },
        values={
            "speed_of_memory": speed,
            "median_speed_of_memory": median(speed),
            "speed_of_by_hand": by_hand,
            "median_speed_of_by_hand": median(by_hand),
        },
        checks=[
            Check(
                f"speed from a {rows * COLUMN.width / 1e9:.1f} GB cache on disk, of that from memory",
                f"≥ {TARGET}",
                f"{median(speed):.3f} (median of {pairs}; {median(by_hand):.3f} of a plain loop written by hand)",
                median(speed) >= TARGET,
            )
        ],
    )


def _timed(ways: dict[str, Callable[[], None]], number: int) -> dict[str, float]:
    """What each way takes; every other time in the opposite order."""
    out = {}
    for name in sorted(ways, reverse=bool(number % 2)):
        start = time.perf_counter()
        ways[name]()
        out[name] = time.perf_counter() - start
    return out


def _copied(shard: Shard) -> Shard:
    """The shard with ordinary arrays for columns."""
    columns = {name: np.array(values) for name, values in shard.columns.items()}
    return dataclasses.replace(shard, columns=columns, codes=np.array(shard.codes))


def _by_hand(inputs: Tensor, labels: Tensor, recipe: ServerConfig) -> None:
    """The loop one would write without this package."""
    net = Narrow().train()
    decay, momentum = recipe.weight_decay, recipe.momentum
    optimizer = torch.optim.SGD(net.parameters(), recipe.lr, momentum, weight_decay=decay, nesterov=momentum > 0)
    for index in torch.randperm(len(inputs)).split(recipe.batch):
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(net({COLUMN.name: inputs[index]}), labels[index]).backward()
        optimizer.step()
