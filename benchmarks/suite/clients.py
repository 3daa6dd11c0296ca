"""Many small clients in one federation on disk: how time and memory grow with their number.

Each number of clients in a process of its own, with the usual limit of 1,024 open files. Data is asked for when a
client's turn comes, so memory is the federation's and not the data's. The exponent is the slope of log time over log
clients: 1 is linear. Of repeated runs the fastest counts, since whatever else a machine does only slows it down; the
steps that change the disk are counted too, and no other process disturbs those.
"""

from __future__ import annotations

import functools
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Check, Result, in_child, slope, status_bytes
from splitwiper import ClientConfig, Config, Federation, ServerConfig, split
from splitwiper.models import mlp
from splitwiper.store import files

STAGES = ("learn", "unlearn", "status")
LARGEST_EXPONENT = 1.1
LARGEST_GROWTH = 32_768
FILES = 1024
ROWS, FEATURES, CLASSES = 20, 8, 4


def missing(*, quick: bool = False) -> str:
    """It counts in ``/proc``."""
    return "" if sys.platform == "linux" else "it needs Linux"


def run(*, quick: bool) -> Iterator[Result]:
    """Measure each number of clients, several times over."""
    counts, repeats = ((3, 6), 1) if quick else ((125, 250, 500, 1000), 3)
    runs = [in_child("clients", clients=count) for _ in range(repeats) for count in counts]
    by_count = [[r for r in runs if r["clients"] == count] for count in counts]
    fastest = {
        f"{stage}_{clock}": [min(r[f"{stage}_{clock}"] for r in same) for same in by_count]
        for stage in STAGES
        for clock in ("seconds", "cpu_seconds", "disk_steps")
    }
    peaks = [min(r["peak_bytes"] for r in same) for same in by_count]
    exponents = {what: _exponent(counts, values) for what, values in fastest.items()}
    growth = slope(counts, peaks)
    most = counts[-1]
    yield Result(
        parameters={
            "clients": counts,
            "repeats": repeats,
            "rows_per_client": ROWS,
            "features": FEATURES,
            "open_files_allowed": FILES,
        },
        values={
            "runs": runs,
            "fastest": fastest,
            "peak_bytes": peaks,
            "exponents": exponents,
            "bytes_per_client": growth,
        },
        checks=[
            *(_linear(stage, most, fastest, exponents) for stage in STAGES),
            Check(
                f"memory up to {most:,} clients: growth per client",
                f"≤ {LARGEST_GROWTH / 1024:.0f} KiB",
                f"{growth / 1024:.1f} KiB ({peaks[-1] / peaks[0]:.2f} × the peak at {counts[0]})",
                growth <= LARGEST_GROWTH,
            ),
            Check(
                f"open files with {most:,} clients",
                f"≤ {FILES:,}, the usual limit",
                f"{max(r['open_files'] for r in runs)} at most between stages; all work finished under that limit",
                not any(r["todo"] for r in runs),
            ),
        ],
    )


def _exponent(counts: Sequence[int], values: Sequence[float]) -> float | None:
    """How values grow with counts; None where there is nothing to grow."""
    return slope([math.log(n) for n in counts], [math.log(v) for v in values]) if min(values) > 0 else None


def _linear(stage: str, most: int, fastest: dict[str, list[float]], exponents: dict[str, float | None]) -> Check:
    time_, steps = exponents[f"{stage}_seconds"] or 0.0, exponents[f"{stage}_disk_steps"]
    ratio = fastest[f"{stage}_seconds"][-1] / fastest[f"{stage}_seconds"][-2]
    counted = "" if steps is None else f"; disk steps {steps:.2f}"
    return Check(
        f"{stage}, up to {most:,} clients: exponent of time over clients",
        f"≤ {LARGEST_EXPONENT}",
        f"{time_:.2f} ({ratio:.2f} × the time for twice the clients; processor time "
        f"{exponents[f'{stage}_cpu_seconds']:.2f}{counted})",
        time_ <= LARGEST_EXPONENT,
    )


def child(*, clients: int) -> dict[str, Any]:
    """Learn, unlearn and look at one federation; its folder is removed."""
    import resource

    torch.set_num_threads(1)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES if hard < 0 else min(FILES, hard), hard))
    names = [f"client-{number:04d}" for number in range(clients)]
    halves = split(mlp(FEATURES, CLASSES), at="stem", example=torch.zeros(1, FEATURES))
    config = Config(seed=1, server=ServerConfig(epochs=1), client=ClientConfig(epochs=1, slices=2))
    out: dict[str, Any] = {"clients": clients, "open_files": 0}
    with tempfile.TemporaryDirectory(prefix="splitwiper-") as folder:
        Federation(f"{folder}/first", halves, config).learn({"one": functools.partial(_rows, 0)})  # libraries are ready
        fed = Federation(f"{folder}/run", halves, config)
        stages: dict[str, Callable[[], object]] = {
            "learn": lambda: fed.learn({name: functools.partial(_rows, n) for n, name in enumerate(names)}),
            "unlearn": lambda: fed.unlearn(names[1], classes=[1]),
            "status": fed.status,
        }
        for stage, work in stages.items():
            out |= {f"{stage}_{what}": value for what, value in _measured(work).items()}
            out["open_files"] = max(out["open_files"], len(list(Path("/proc/self/fd").iterdir())))
        out["todo"] = len(fed.status().todo)
    return out | {"peak_bytes": status_bytes("VmHWM")}  # ru_maxrss would start from the parent's


def _measured(work: Callable[[], object]) -> dict[str, float]:
    steps = 0

    def count(_kind: str, _path: Path) -> None:
        nonlocal steps
        steps += 1

    wall, cpu = time.perf_counter(), time.process_time()
    with files.watch(count):
        work()
    return {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "disk_steps": steps // 2,  # before and after
    }


def _rows(seed: int) -> tuple[np.ndarray[Any, np.dtype[np.float32]], np.ndarray[Any, np.dtype[np.int64]]]:
    draw = np.random.default_rng(seed)
    return draw.normal(size=(ROWS, FEATURES)).astype(np.float32), np.arange(ROWS) % CLASSES
