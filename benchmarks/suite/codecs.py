"""One GPU: bytes per row and accuracy of each codec (CIFAR-10, VGG, five clients, overlapping labels, 30 epochs)."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.harness import Check, Result
from benchmarks.real import folder, images, lacking, tell
from splitwiper import Federation
from splitwiper.config import CODECS

SEEDS = (1, 2, 3)
COMPARED = ("none", "int4")
"""Codecs that are measured with all seeds; the others with the first."""


def missing(*, quick: bool = False) -> str:
    """It needs a GPU and CIFAR-10."""
    return lacking("cifar10", gpu=True, quick=quick)


def run(*, quick: bool) -> Iterator[Result]:
    """One result a codec, and the comparison."""
    found: dict[str, dict[str, Any]] = {}
    for codec in CODECS:
        seeds = SEEDS if codec in COMPARED and not quick else SEEDS[:1]
        told = [_once(codec, seed, quick=quick) for seed in seeds]
        found[codec] = {
            "bytes_per_row": told[0][0],
            "accuracies": [accuracy for _, accuracy in told],
            "accuracy": statistics.mean(accuracy for _, accuracy in told),
        }
        yield _alone(codec, found[codec], seeds)
    plain, four = found["none"], found["int4"]
    share, points = four["bytes_per_row"] / plain["bytes_per_row"], 100 * (four["accuracy"] - plain["accuracy"])
    checks = [Check("4-bit: share of the bytes as computed", "≤ 0.13", f"{share:.4f}", share <= 0.13)]
    checks += [
        Check(
            f"4-bit: accuracy against that of activations as computed, mean of {len(four['accuracies'])} seeds",
            "at most 0.5 points worse",
            f"{points:+.2f} points",
            points >= -0.5 or quick,
        )
    ]
    yield Result({"seeds": SEEDS, "quick": quick}, {"share": share, "points": points}, checks)


def _alone(codec: str, values: dict[str, Any], seeds: Sequence[int]) -> Result:
    spread = ", ".join(f"{100 * a:.2f}" for a in values["accuracies"])
    told = f"{values['bytes_per_row']:,.0f}; {100 * values['accuracy']:.2f} % ({spread})"
    check = Check(f"codec {codec}: bytes per row; accuracy on all labels", "reported", told, True)
    return Result({"codec": codec, "seeds": seeds}, values, [check])


def _once(codec: str, seed: int, *, quick: bool) -> tuple[float, float]:
    """Bytes per row, and accuracy over all labels."""
    work = images(quick=quick, seed=seed, client={"codec": codec})
    with folder() as root:
        fed = Federation(root / "run", config=work.config)
        told = tell(fed, work, forget=False)
        accuracy = fed.evaluate(work.test).accuracy
    return told.bytes_per_row, accuracy
