"""Bytes per row of each codec, stored and on the way with zstd, on real activations (CIFAR-10, VGG's client half).

The second part sends the shards to a server over mutual TLS, as they are and compressed, and takes bytes and time.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from benchmarks.harness import Check, Result
from benchmarks.real import folder, lacking
from benchmarks.suite.service import IDLE, serving
from splitwiper import Federation
from splitwiper.client import Client
from splitwiper.client.embed import Sending, embed, fit
from splitwiper.config import CODECS, to_toml
from splitwiper.service.identity import Authority, client_context
from splitwiper.service.site.link import HttpsLink
from splitwiper.service.storing import Architecture
from splitwiper.wire import Spent, Statement
from splitwiper.wire.transfer import carry
from splitwiper_lab.workloads import workload

ROWS = 2000
_SERVICE = """
[service]
port = 0
certs = "certs/server"
signed = false
rate = 100000.0
burst = 1000000
codec = "{codec}"
"""


def missing(*, quick: bool = False) -> str:
    """It needs CIFAR-10 and zstandard."""
    if importlib.util.find_spec("zstandard") is None:
        return "the package zstandard is not installed"
    return lacking("cifar10", gpu=False, quick=quick)


def run(*, quick: bool, only: str = "") -> Iterator[Result]:
    """All codecs on the same frozen halves, then uploads of the shards of some."""
    if only in "codecs":
        yield _stored(quick)
    if only in "uploads":
        for codec in ("none", "int8"):
            yield _sent(codec, quick)


def _stored(quick: bool) -> Result:
    source, model = ("digits", "digits_cnn") if quick else ("cifar10", "vgg")
    brief = {"server": {"epochs": 1}, "client": {"epochs": 1}} if quick else {"server": {"epochs": 1}}
    work = workload(source, model, seed=1, rows=200 if quick else ROWS, **brief)
    with folder() as root:
        fed = Federation(root / "run", config=work.config)
        fed.learn(work.train)
        rows = sum(record.rows for record in fed._server.store.shards())
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
    return Result({"source": source, "model": model, "rows": rows}, {"stored": stored, "sent": sent}, checks)


def _sent(codec: str, quick: bool) -> Result:
    """Send the same shards, plain and compressed, to a server on loopback, in alternating order."""
    source, model = ("digits", "digits_cnn") if quick else ("cifar10", "vgg")
    brief = {"server": {"epochs": 1}, "client": {"epochs": 1, "codec": codec}}
    work = workload(source, model, seed=1, rows=200 if quick else 500, **brief)
    seconds: dict[str, list[float]] = {"none": [], "zstd": []}
    travelled = dict.fromkeys(seconds, 0)
    with folder() as root:
        fed = Federation(root / "run", config=work.config)
        fed.learn(work.train)
        store = fed._server.store
        shards = [store.root / "shards" / record.file for record in store.shards()]
        Authority.create(root / "certs", "bench", hosts=["127.0.0.1"]).issue_client("client-0")
        text = to_toml(Architecture(seed=1, model=work.config.model)) + _SERVICE.format(codec=codec)
        context = client_context(root / "certs" / "clients" / "client-0")
        with serving(root, "store", coalesce=IDLE, text=text) as (url, _), ExitStack() as stack:
            links = {
                way: stack.enter_context(closing(HttpsLink(url, context, transfer=way, patience=600)))
                for way in seconds
            }
            for number, path in enumerate([shards[0], *shards] * (1 if quick else 3)):
                for way in sorted(seconds, reverse=bool(number % 2)):
                    links[way].upload("client-0", path, Statement("c", "i", "k", {}, (), Spent()))
                    if number:  # the first is to get warm
                        seconds[way].append(links[way].timings["sent"])
                        travelled[way] += links[way].travelled
    ratio = travelled["zstd"] / travelled["none"]
    slower = float(np.median(np.array(seconds["zstd"]) / np.array(seconds["none"])))
    told = f"{ratio:.2f} × the bytes, {slower:.1f} × the time on loopback"
    check = Check(f"codec {codec}: shards sent with zstd over mutual TLS, against as they are", "reported", told, True)
    parameters = {"part": "uploads", "source": source, "model": model, "codec": codec, "bytes": travelled["none"]}
    return Result(parameters, {"seconds": seconds, "travelled": travelled}, [check])


def _sizes(client: Client, codec: str) -> tuple[int, int]:
    """A client's shard under a codec: its size, and what travels of it."""
    half_inputs = client._half_inputs()
    half_inputs = dataclasses.replace(half_inputs, config=dataclasses.replace(half_inputs.config, codec=codec))
    sending = Sending(half_inputs, client.sent().state, list(client.holdings.slices().values()))
    fit(sending, columns=client._columns)
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryFile() as target:
        path = Path(place) / "shard"
        with path.open("w+b") as file:
            embed(file, sending, columns=client._columns)
        return path.stat().st_size, carry(path, target, "zstd")
