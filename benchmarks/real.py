"""Real data and networks for benchmarks: a workload, learned, scored, forgotten and scored again."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from splitwiper import Federation
from splitwiper.errors import SplitWiperError
from splitwiper_lab.datasets.sources import load
from splitwiper_lab.workloads import Workload, workload

FAST = {"server": {"precision": "bfloat16"}, "client": {"precision": "bfloat16", "codec": "int4", "batch": 256}}
"""What the GPU benchmarks train with, besides the recipes of `splitwiper_lab.workloads`."""


def lacking(*sources: str, gpu: bool, quick: bool) -> str:
    """What is not here: data sets, or a GPU. A quick run needs neither."""
    if quick:
        return ""
    if gpu and not torch.cuda.is_available():
        return "there is no GPU"
    for source in sources:
        try:
            load(source)
        except SplitWiperError:
            return f"the data set {source} is not here; set SPLITWIPER_DATA, or `splitwiper data fetch {source}`"
    return ""


def images(*, quick: bool, seed: int = 1, source: str = "cifar10", model: str = "vgg", **more: Any) -> Workload:
    """A workload on the GPU; quick, digits on the CPU for a moment."""
    if quick:
        short = {"epochs": 2, "batch": 64}
        holding = {"codec": "int4", **short, **more.get("client", {})}
        return workload("digits", "digits_cnn", seed=seed, rows=300, server=short, client=holding)
    options = {side: {**FAST[side], **more.pop(side, {})} for side in ("server", "client")}
    return workload(source, model, seed=seed, device="cuda", **options, **more)


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for runs, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="splitwiper-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class Told:
    """What a federation that learned, and perhaps forgot, says of itself."""

    seconds: dict[str, float]
    before: dict[str, float]
    after: dict[str, float]
    bytes_per_row: float
    digests: tuple[str, ...]


def tell(fed: Federation, work: Workload, *, forget: bool = True) -> Told:
    """Learn, evaluate, and unless told otherwise unlearn the workload's label and evaluate again."""
    seconds, digests = {}, []
    with _timed(seconds, "learn"):
        learned = fed.learn(work.train, tasks=work.tasks)
    seconds["clients"] = sum(spent.seconds for spent in learned.spent.values())
    seconds["server"] = learned.server_seconds
    digests.append(_digest(fed))
    with _timed(seconds, "evaluate"):
        before = _accuracies(fed, work)
    after: dict[str, float] = {}
    if forget:
        with _timed(seconds, "unlearn"):
            fed.unlearn(work.owner, classes=[work.forget])
        digests.append(_digest(fed))
        with _timed(seconds, "evaluate again"):
            after = _accuracies(fed, work)
        seconds["total"] = sum(seconds[part] for part in ("learn", "evaluate", "unlearn", "evaluate again"))
    rows = sum(len(labels) for _, labels in work.train.values())
    sent = sum(spent.bytes_up for spent in learned.spent.values())
    return Told(seconds, before, after, sent / rows, tuple(digests))


def _digest(fed: Federation) -> str:
    model = fed._server.store.model()
    return model.digest if model else ""


@contextmanager
def _timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[part] = time.perf_counter() - start


def _accuracies(fed: Federation, work: Workload) -> dict[str, float]:
    """Accuracy on the label to forget, and on all others."""
    told = {"forgotten": [0, 0], "retained": [0, 0]}
    task = work.tasks.get(work.owner, "")
    for label, score in fed.evaluate(work.test).per_label.items():
        part = told["forgotten" if (label.task, label.name) == (task, work.forget) else "retained"]
        part[0] += score.right
        part[1] += score.rows
    return {name: right / rows for name, (right, rows) in told.items()}
