"""Hiding labels, coding and noise while a shard is written, against writing the same rows as they are.

Both sides read the same pictures, compute the same activations (a client half that hardly computes) and end with the
bytes on disk. Noise is held against making the secure bytes that it takes, and writing. Pairs are alternated.
"""

from __future__ import annotations

import importlib.util
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.harness import Check, Result, in_child, peak_memory, status_bytes
from splitwiper.client.content import rewrite_slice, row_macs
from splitwiper.client.embed import BATCH, Sending, embed
from splitwiper.client.hiding import Hiding
from splitwiper.client.pretrain import ClientHalfInputs
from splitwiper.config import ClientConfig, Masking, Noise
from splitwiper.data.rows import Rows
from splitwiper.masking.modes import expand, mode_for
from splitwiper.masking.sealing import GroupKey
from splitwiper.privacy import secure_stream
from splitwiper.privacy.noise import BLOCK
from splitwiper.store import files
from splitwiper.wire import Column, Label, Shard, open_shard

INPUT, SHAPE = (3, 32, 32), (64, 16, 16)
PICTURE, COLUMN = Column("x", "U8", INPUT), Column("activation", "F32", SHAPE)
LABELS = tuple(Label("", number) for number in range(10))
KEY = bytes(range(32))
NONE, LAPLACE = Noise(), Noise(mechanism="laplace", epsilon=1.0, clip=1.0, reading="value", nonnegative=True)
GAUSSIAN = Noise(mechanism="gaussian", epsilon=4.0, clip=8.0, reading="row")
WORDS = {"laplace": ("<i4", "<i2"), "gaussian": ("<i4", "<i4")}
CASES = (
    ("partition, γ = 3", Masking(mode="partition", gamma=3), NONE),
    ("keyed", Masking(mode="keyed"), NONE),
    ("duplicate, γ = 3", Masking(mode="duplicate", gamma=3), NONE),
    ("keyed, Laplace noise on values", Masking(mode="keyed"), LAPLACE),
    ("keyed, Gaussian noise on rows", Masking(mode="keyed"), GAUSSIAN),
)


class Light(nn.Module):
    """A client half that hardly computes: the picture at half its size, each channel many times."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """What crosses the cut."""
        small = functional.avg_pool2d(x.float(), 2) / 255
        return {"activation": small[:, [c % INPUT[0] for c in range(SHAPE[0])]]}


def missing(*, quick: bool = False) -> str:
    """It needs the packages of the extra."""
    lacking = [name for name in ("cryptography", "dp_accounting") if importlib.util.find_spec(name) is None]
    return f"it needs {lacking[0]}: pip install 'splitwiper[plus]'" if lacking else ""


def run(*, quick: bool) -> Iterator[Result]:
    """Measure each case in alternated pairs, then the memory that copies take."""
    rows, pairs = (512, 1) if quick else (10_000, 5)
    with tempfile.TemporaryDirectory(prefix="splitwiper-") as name:
        folder = Path(name)
        held = _held(folder, rows)
        _embed(folder / "out", _half_inputs(*CASES[-1][1:]), held)  # imports, and first calls
        for what, masking, noise in CASES:
            half_inputs = _half_inputs(masking, noise)
            times = 3 if masking.mode == "duplicate" else 1
            ours, least = _alternated(folder, half_inputs, held, times, noise, pairs)
            ratio = statistics.median(a / b for a, b in zip(ours, least, strict=True))
            target = 2.0 if noise.is_on else 1.5
            against = "the secure bytes and writing" if noise.is_on else "writing the rows as they are"
            yield Result(
                parameters={"rows": rows, "shape": SHAPE, "case": what, "pairs": pairs},
                values={"seconds": ours, "against_seconds": least, "ratio": ratio},
                checks=[Check(f"{what}: time against {against}", f"≤ {target} ×", f"{ratio:.2f} ×", ratio <= target)],
            )
        values = {str(gamma): in_child("masking", folder=str(folder), gamma=gamma)["peak_bytes"] for gamma in (1, 4)}
        more = values["4"] - values["1"]
        shard = rows * COLUMN.width
        yield Result(
            parameters={"rows": rows, "shape": SHAPE, "shard_bytes": shard},
            values={"peak_bytes": values},
            checks=[
                Check(
                    f"anonymous memory for γ = 4 beyond that for γ = 1, for a shard of {shard / 1e6:.0f} MB a copy",
                    "bounded by a block, not by γ × the shard",
                    f"{more / 1e6:.1f} MB (of {values['4'] / 1e6:.0f} MB)",
                    more < max(16e6, 0.1 * shard),
                )
            ],
        )


def child(*, folder: str, gamma: int) -> dict[str, Any]:
    """Write a shard with so many copies of each row, and look at the memory it takes."""
    held = open_shard(next(Path(folder).glob("slice*")))
    start = status_bytes("RssAnon")
    with peak_memory() as peak:
        _embed(Path(folder) / "out", _half_inputs(Masking(mode="duplicate", gamma=gamma), NONE), held)
    (Path(folder) / "out").unlink()
    return {"peak_bytes": peak[0] - start}


def _embed(path: Path, half_inputs: ClientHalfInputs, held: Shard) -> None:
    """Write the shard of some rows."""
    with files.atomic_file(path) as file:
        embed(file, Sending(half_inputs, {}, [held]), columns=[COLUMN])


def _held(folder: Path, rows: int) -> Shard:
    """A client's rows, as its slices hold them."""
    draw = np.random.default_rng(0)
    values = draw.integers(0, 256, (rows, *INPUT), np.uint8)
    labels = tuple(LABELS[i % len(LABELS)] for i in range(rows))
    found = Rows({"x": values}, "one", labels)
    macs = np.frombuffer(b"".join(row_macs(found, KEY)), np.uint8).reshape(-1, 32)
    record = rewrite_slice(folder, [PICTURE], None, add=(found.inputs, macs, labels))
    if record is None:
        raise RuntimeError("no rows")
    return open_shard(folder / record.file)


def _half_inputs(masking: Masking, noise: Noise) -> ClientHalfInputs:
    group = GroupKey.of("a secret for benchmarks", federation="benchmark")
    hiding = Hiding(expand(LABELS, group, masking), mode_for(masking, group), masking)
    return ClientHalfInputs(
        name="north",
        seed=0,
        config=ClientConfig(masking=masking, noise=noise),
        key=KEY,
        half=Light(),
        initial={},
        initial_digest="",
        call="one",
        names=("x",),
        floats=(),
        hiding=hiding,
    )


def _alternated(
    folder: Path, half_inputs: ClientHalfInputs, held: Shard, times: int, noise: Noise, pairs: int
) -> tuple[list[float], list[float]]:
    def ours() -> None:
        _embed(folder / "out", half_inputs, held)

    def least() -> None:
        _written(folder / "out", held, times, noise)

    seconds: dict[Callable[[], None], list[float]] = {ours: [], least: []}
    for _ in range(pairs):
        for work, kept in seconds.items():
            start = time.perf_counter()
            work()
            kept.append(time.perf_counter() - start)
            (folder / "out").unlink()
    return seconds[ours], seconds[least]


def _written(path: Path, held: Shard, times: int, noise: Noise) -> None:
    """The rows' activations as they are, on disk; where there is noise, with the secure bytes it takes made too."""
    pictures: Any = held.columns["x"]
    stream, half = secure_stream(KEY, "benchmark"), Light()
    width = math.prod(SHAPE)
    with files.atomic_file(path) as file, torch.no_grad():
        for _ in range(times):
            for start in range(0, held.rows, BATCH):
                block = half(torch.from_numpy(np.array(pictures[start : start + BATCH])))["activation"].numpy()
                for at in range(0, block.size, BLOCK):
                    for kind in WORDS[noise.mechanism] if noise.is_on else ():
                        stream.words(start * width + at, min(BLOCK, block.size - at), kind)
                file.write(block.data)
