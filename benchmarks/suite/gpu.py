"""One GPU: CIFAR-10, VGG, five clients with overlapping labels, 30 epochs; learn, unlearn a class, evaluate.

Everything is counted that a user waits for: reading rows in, pre-training, embedding, writing and hashing shards,
training, publishing, predicting. Deterministic algorithms are on, and whole runs must be equal, bit for bit.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.harness import Check, Result
from benchmarks.profiling import in_words, on_gpu, on_host
from benchmarks.real import Told, folder, images, lacking, tell
from splitwiper import Federation
from splitwiper.client import pretrain
from splitwiper.server import Server
from splitwiper.training import feeding, loop
from splitwiper.training.loop import Pausing, finish
from splitwiper_lab.workloads import Workload

RUNS = 3
FAST, SLOW = "graph, bfloat16, resident, decoded", "eager, float32, streamed"


def missing(*, quick: bool = False) -> str:
    """It needs a GPU and CIFAR-10."""
    return lacking("cifar10", gpu=True, quick=quick)


def run(*, quick: bool) -> Iterator[Result]:
    """Whole runs, then the parts."""
    work = images(quick=quick)
    with folder() as root:
        told = []
        for number in range(RUNS):
            fed = Federation(root / str(number), config=work.config)
            told.append(tell(fed, work))
        yield _whole(told)
        yield _pretraining(fed)
        yield _server(fed, work, quick=quick)
        if torch.cuda.is_available():
            yield _profile(fed, work, root / "profiled")


def _whole(told: list[Told]) -> Result:
    median = {part: statistics.median(t.seconds[part] for t in told) for part in told[0].seconds}
    last = told[-1]
    equal = len({t.digests for t in told}) == 1
    values = {
        "seconds": [t.seconds for t in told],
        "median_seconds": median,
        "before": last.before,
        "after": last.after,
        "bytes_per_row": last.bytes_per_row,
        "equal_runs": equal,
        "digests": last.digests,
        "peak_gpu_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None,
    }
    first = told[0].seconds["total"]
    checks = [
        Check("server training", "≤ 6 s", f"{median['server']:.1f} s", median["server"] <= 6),
        Check(
            "learn + unlearn one class + evaluate twice, median of three; the first, with the GPU's start",
            "≤ 20 s (stretch 15)",
            f"{median['total']:.1f} s; {first:.1f} s",
            median["total"] <= 20,
        ),
        Check("whole runs equal, bit for bit", f"{RUNS} of {RUNS}", "equal" if equal else "not equal", equal),
        Check(
            "accuracy on retained labels after unlearning",
            "≥ 89.5 %",
            f"{100 * last.after['retained']:.2f} %",
            last.after["retained"] >= 0.895,
        ),
        Check(
            "accuracy on the forgotten label",
            "0.00 %",
            f"{100 * last.before['forgotten']:.2f} % → {100 * last.after['forgotten']:.2f} %",
            last.after["forgotten"] == 0,
        ),
    ]
    return Result({"runs": RUNS, "rows": "all"}, values, checks)


def _pretraining(fed: Federation) -> Result:
    """Only the clients' pre-training: together, and one after another."""
    clients = [fed._client(name) for name in fed.clients]
    seconds = {}
    for how in ("together", "in turn"):
        start = time.perf_counter()
        work: list[Pausing[Any]] = [pretrain.pretrain(c._half_inputs(), c.holdings.slices()) for c in clients]
        if how == "in turn":
            for one in work:
                finish(one)
        while how == "together" and work:
            work = [one for one in work if _goes_on(one)]
        seconds[how] = time.perf_counter() - start
    return Result(
        {"clients": len(clients), "epochs": fed.config.client.epochs},
        {"seconds": seconds},
        [
            Check(
                "the five clients' pre-training, together; one after another",
                "≤ 6 s",
                f"{seconds['together']:.1f} s; {seconds['in turn']:.1f} s",
                seconds["together"] <= 6,
            )
        ],
    )


def _goes_on(work: Pausing[Any]) -> bool:
    try:
        next(work)
    except StopIteration:
        return False
    return True


def _ways(server: Server) -> dict[str, tuple[Any, ...]]:
    """What makes an epoch fast, taken away one after another; all but the last give the same bits."""
    never = patch.object(loop, "_GRAPHS_FROM", 10**9)
    stored = patch.object(feeding.DecodedFeed, "need", staticmethod(lambda *_: 1 << 60))
    streamed = patch.object(feeding.ResidentFeed, "need", staticmethod(lambda *_: 1 << 60))
    plain = patch.object(server, "config", replace(server.config, precision="float32"))
    return {
        FAST: (),
        "graph, resident as stored": (stored,),
        "graph, streamed": (stored, streamed),
        "eager, resident, decoded": (never,),
        "eager, streamed": (never, stored, streamed),
        SLOW: (never, stored, streamed, plain),
    }


def _epochs(server: Server, changes: tuple[Any, ...], count: int) -> tuple[float, float]:
    """Seconds of an epoch that is not the first, and the last loss."""
    ends: list[float] = []
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change)
        stack.enter_context(patch.object(server, "config", replace(server.config, epochs=count)))
        stack.enter_context(patch.object(server, "_progress", lambda *_, **__: ends.append(time.perf_counter())))
        trained, _ = server.compute(server.store.shards())
    return (ends[-1] - ends[0]) / (len(ends) - 1), trained.losses[-1]


def _server(fed: Federation, work: Workload, *, quick: bool) -> Result:
    """An epoch of the server half, as one thing after another is taken away that makes it fast."""
    logging.getLogger("splitwiper").setLevel(logging.ERROR)  # it would say that nothing fits
    told = {way: _epochs(fed._server, changes, 2 if quick else 5) for way, changes in _ways(fed._server).items()}
    logging.getLogger("splitwiper").setLevel(logging.NOTSET)
    rows = sum(len(labels) for _, labels in work.train.values())
    seconds = {way: epoch for way, (epoch, _) in told.items()}
    same = len({loss for way, (_, loss) in told.items() if way != SLOW}) == 1
    listed = "; ".join(f"{way} {1000 * epoch:.0f} ms" for way, epoch in seconds.items())
    return Result(
        {"rows": rows},
        {"seconds_per_epoch": seconds, "rows_per_second": rows / seconds[FAST], "equal_losses": same},
        [Check("an epoch of the server half, by what is used", "all but float32 equal", listed, same)],
    )


def _profile(fed: Federation, work: Workload, path: Path) -> Result:
    """Top costs before (eager, float32, streamed) and after, on the GPU; and of a whole `learn`, on the host."""
    ways, server = _ways(fed._server), fed._server
    logging.getLogger("splitwiper").setLevel(logging.ERROR)
    gpu = {way: on_gpu(lambda way=way: _epochs(server, ways[way], 3)) for way in (SLOW, FAST)}
    logging.getLogger("splitwiper").setLevel(logging.NOTSET)
    host = on_host(lambda: Federation(path, config=work.config).learn(work.train))
    checks = [
        Check(
            f"top costs of three epochs: {way}",
            "reported",
            f"GPU busy {100 * told['busy']:.0f} % of the time: {in_words(told['milliseconds'])}",
            True,
        )
        for way, told in gpu.items()
    ]
    checks.append(Check("top costs of the host in a whole `learn`", "reported", in_words(host, 6), True))
    return Result({}, {"gpu": gpu, "host_seconds": host}, checks)
