"""One GPU: accuracy before and after forgetting, for every network, data set and distribution of the paper.

Five clients, 10 epochs of pre-training, 30 of the server half, 4-bit activations. Each client is scored through its own
half on its own labels' test rows, as in the paper. AG-News: with as many training rows as are there.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness import Check, Result
from benchmarks.real import folder, images, lacking, tell
from splitwiper import Federation

CELLS = [
    ("vgg", "cifar10", "overlapping"),
    ("vgg", "cifar10", "homogeneous"),
    ("vgg", "cifar10", "disjoint"),
    ("vgg", "cifar10+mnist", "overlapping"),
    ("mini_bert", "ag_news", "overlapping"),
    ("resnet18", "cifar10", "overlapping"),
    ("resnet18", "cifar10", "homogeneous"),
    ("resnet18", "cifar10", "disjoint"),
    ("resnet18", "cifar10+mnist", "overlapping"),
]
VERIFIED = [CELLS[0], CELLS[4]]
"""Cells whose runs are verified too: every bit, recomputed."""


def missing(*, quick: bool = False) -> str:
    """It needs a GPU and the data sets."""
    return lacking("cifar10", "mnist", "ag_news", gpu=True, quick=quick)


def run(*, quick: bool, only: str = "") -> Iterator[Result]:
    """One result a cell."""
    for model, source, partition in CELLS[:1] if quick else [c for c in CELLS if only in " ".join(c)]:
        work = images(quick=quick, model=model, source=source, partition=partition)
        with folder() as root:
            fed = Federation(root / "run", config=work.config)
            told = tell(fed, work)
            exact = fed.verify().exact if (model, source, partition) in VERIFIED else None
        rows = {name: len(labels) for name, (_, labels) in work.train.items()}
        checks = [
            Check(
                f"{model}, {source}, {partition}: retained labels before → after forgetting {work.forget}",
                "reported",
                f"{100 * told.before['retained']:.2f} % → {100 * told.after['retained']:.2f} %",
                True,
            ),
            Check(
                f"{model}, {source}, {partition}: the forgotten label",
                "0.00 %",
                f"{100 * told.before['forgotten']:.2f} % → {100 * told.after['forgotten']:.2f} %",
                told.after["forgotten"] == 0,
            ),
        ]
        yield Result(
            {"model": model, "source": source, "partition": partition, "rows": rows, "seed": work.config.seed},
            {"before": told.before, "after": told.after, "seconds": told.seconds, "verified_exact": exact},
            checks,
        )
