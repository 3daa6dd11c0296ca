"""What a transcript costs the server that keeps it, and what recomputing one epoch costs an auditor.

All times are ratios to training without a transcript, in the same run; pairs alternate in order. Processor time counts
all threads of the process, the one that writes states included, and is steadier than the clock where others use the
machine. Recomputing an epoch includes reading and digesting the shards and the state before it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Check, Result
from benchmarks.real import folder
from splitwiper import ClientConfig, Config, Federation, Halves, ServerConfig, split
from splitwiper.formats import size
from splitwiper.server import Server
from splitwiper.server.transcript import check_end, check_first, detection, recompute_epoch
from splitwiper.store import ServerStore
from splitwiper_lab.models import vgg

LABELS = 4
_HOW = ("", "_cpu")
"""What names of values end in: by the clock, and in processor time."""
_SIZES = {"cpu": (400, 8, 10, 7), "cuda": (40_000, 64, 30, 3)}
"""Rows, width of the network, epochs, and how often all is measured."""
Rows = dict[str, tuple[np.ndarray[Any, np.dtype[np.uint8]], np.ndarray[Any, np.dtype[np.int64]]]]


def run(*, quick: bool) -> Iterator[Result]:
    """Train with and without, and recompute every epoch; for an optimiser with one moment and one with two."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, width, epochs, pairs = (64, 4, 2, 1) if quick else _SIZES[device]
    for optimizer, rate in (("sgd", 0.05), ("adamw", 0.001)):
        server = ServerConfig(epochs=epochs, batch=64, optimizer=optimizer, lr=rate, device=device)
        torch.manual_seed(0)
        halves = split(vgg(width=width), at="stem", example=torch.zeros(1, 3, 32, 32, dtype=torch.uint8))
        with folder() as path:
            yield _result(path, halves, server, _images(rows), pairs)


def _images(rows: int) -> Rows:
    """Made-up images of four clients: what they show does not matter to the time."""
    draw, out = np.random.default_rng(0), {}
    for name in ("east", "north", "south", "west"):
        images = draw.integers(0, 256, (rows // 4, 3, 32, 32), dtype=np.uint8)
        out[name] = (images, np.arange(rows // 4) % LABELS)
    return out


def _result(path: Path, halves: Halves, config: ServerConfig, rows: Rows, pairs: int) -> Result:
    servers = {kept: _learned(path / str(kept), halves, config, rows, kept) for kept in (False, True)}
    for server in servers.values():
        _retrained(server)  # the page cache, the allocator and the libraries are warm after this
    server, epochs = servers[True], config.epochs
    inputs, transcript = server.inputs(server.store.shards()), server.transcript()
    model, last = server.store.model(), server.store.epoch_state(epochs)
    if model is None:
        raise RuntimeError("the server has no model after its training")
    checks = [check_first(inputs, transcript), check_end(inputs, transcript, last, model.digest)]
    ratios: dict[str, list[float]] = {
        f"{what}{how}": [] for what in ("training_with", "recomputed_all") for how in _HOW
    }
    for number in range(pairs):
        seconds = {kept: _retrained(servers[kept]) for kept in (False, True)[:: -1 if number % 2 else 1]}
        start = _clocks()
        for epoch in range(1, epochs + 1):
            inputs = server.inputs(server.store.shards())  # every time, since an auditor may recompute a single epoch
            checks.append(recompute_epoch(inputs, transcript, epoch, server.store.epoch_state(epoch - 1)))
        again = _since(start)
        for how, without, kept, recomputed in zip(_HOW, seconds[False], seconds[True], again, strict=True):
            ratios[f"training_with{how}"].append(kept / without)
            ratios[f"recomputed_all{how}"].append(recomputed / without)
    middle = {f"median_{what}": median(values) for what, values in ratios.items()}
    cost, cost_cpu = ratios["training_with"], middle["median_training_with_cpu"]
    every, every_cpu = middle["median_recomputed_all"], middle["median_recomputed_all_cpu"]
    weights = sum(server.store.sizes("models").values())
    states = list(server.store.sizes("epochs").values())
    exact = all(check.exact for check in checks)
    few = max(1, epochs // 5)
    return Result(
        parameters={
            "optimizer": config.optimizer,
            "epochs": epochs,
            "rows": sum(len(labels) for _, labels in rows.values()),
            "weights_bytes": weights,
            "batch": config.batch,
            "pairs": pairs,
            "device": config.device,
            "threads": torch.get_num_threads(),
        },
        values={
            **ratios,
            **middle,
            "states_bytes": sum(states),
            "largest_state_bytes": max(states),
            "exact": exact,
        },
        checks=[
            Check(
                f"{config.optimizer}: training with a transcript, of that without",
                "reported",
                f"{cost_cpu:.2f} in processor time, {median(cost):.2f} by the clock (medians of "
                f"{pairs}; by the clock {min(cost):.2f} to {max(cost):.2f})",
                True,
            ),
            Check(
                f"{config.optimizer}: one of {epochs} epochs recomputed, and all, of training",
                "all exact",
                f"{every / epochs:.3f}, and {every:.2f} by the clock, {every_cpu:.2f} in processor time (medians of "
                f"{pairs}); {few} find one forged epoch with probability {detection(epochs, few):.2f}",
                exact,
            ),
            Check(
                f"{config.optimizer}: kept on disk for {epochs} epochs",
                "reported",
                f"{size(sum(states))}, {max(states) / weights:.2f} × the weights for an epoch",
                True,
            ),
        ],
    )


def _learned(path: Path, halves: Halves, config: ServerConfig, rows: Rows, kept: bool) -> Server:
    clients = ClientConfig(epochs=1, device=config.device, keys="seeded")
    fed = Federation(path, halves, Config(server=dataclasses.replace(config, transcript=kept), client=clients))
    fed.learn(rows)
    return Server(ServerStore(path / "server"), halves.server)


def _retrained(server: Server) -> tuple[float, float]:
    """Seconds that training takes, from the shards to the model that counts: by the clock, and of the processor."""
    with server.store.database.change() as db:
        db.execute("DELETE FROM model")
    server.store.sweep()
    start = _clocks()
    server.train()
    return _since(start)


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(start: tuple[float, float]) -> tuple[float, float]:
    now = _clocks()
    return now[0] - start[0], now[1] - start[1]
