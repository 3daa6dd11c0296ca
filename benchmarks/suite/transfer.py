"""Bytes per row of each codec, stored and on the way with zstd, on real activations (CIFAR-10, VGG's client half)."""

from __future__ import annotations

import dataclasses
import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Check, Result
from benchmarks.real import folder, lacking
from splitwiper import Federation
from splitwiper.client import Client
from splitwiper.client.embed import embed, with_ranges
from splitwiper.config import CODECS
from splitwiper.loop import finish
from splitwiper.wire.transfer import carry
from splitwiper.workloads import workload

ROWS = 2000


def missing(*, quick: bool = False) -> str:
    """It needs CIFAR-10 and zstandard."""
    if importlib.util.find_spec("zstandard") is None:
        return "the package zstandard is not installed"
    return lacking("cifar10", gpu=False, quick=quick)


def run(*, quick: bool) -> Iterator[Result]:
    """All codecs on the same frozen halves."""
    source, model = ("digits", "digits_cnn") if quick else ("cifar10", "vgg")
    brief = {"server": {"epochs": 1}, "client": {"epochs": 1}} if quick else {"server": {"epochs": 1}}
    work = workload(source, model, seed=1, rows=200 if quick else ROWS, **brief)
    with folder() as root:
        fed = Federation(root / "run", config=work.config)
        fed.learn(work.train)
        rows = sum(record.rows for record in fed._server.tree.shards())
        clients = [fed._client(name) for name in fed.clients]
        sizes = {
            codec: [sum(pair) for pair in zip(*(_sizes(c, codec) for c in clients), strict=True)] for codec in CODECS
        }
    stored = {codec: pair[0] / rows for codec, pair in sizes.items()}
    sent = {codec: pair[1] / rows for codec, pair in sizes.items()}
    checks = [
        Check(
            f"codec {codec}: bytes per row stored; sent with zstd, as a share of the stored and of all as computed",
            "reported",
            f"{stored[codec]:,.0f}; {sent[codec]:,.0f} ({sent[codec] / stored[codec]:.3f}, "
            f"{sent[codec] / stored['none']:.4f})",
            True,
        )
        for codec in CODECS
    ]
    yield Result({"source": source, "model": model, "rows": rows}, {"stored": stored, "sent": sent}, checks)


def _sizes(client: Client, codec: str) -> tuple[int, int]:
    """A client's shard under a codec: its size, and what travels of it."""
    recipe = client._recipe()
    recipe = dataclasses.replace(recipe, config=dataclasses.replace(recipe.config, codec=codec))
    slices = client.holdings.slices()
    state = finish(client._train(client._recipe(), slices))
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryFile() as target:
        path, parts = Path(place) / "shard", list(slices.values())
        embed(path, recipe, with_ranges(recipe, state, parts, columns=client._columns), parts, columns=client._columns)
        return path.stat().st_size, carry(path, target, "zstd")
