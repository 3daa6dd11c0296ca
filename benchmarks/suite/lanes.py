"""Lanes: the same bits from any number of processes, and what sharing a training costs and brings."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Check, Result
from splitwiper import Federation
from splitwiper.engines import make_engine
from splitwiper.seeding import state_digest
from splitwiper.server.training import TrainingInputs
from splitwiper_lab.workloads import workload

LANES = 4
ROUNDS = 3
"""Rounds in turn, of which the fastest counts: other work on the machine makes some slower."""


def run(*, quick: bool) -> Iterator[Result]:
    """Seconds of an epoch without lanes, with them, and shared by two and four processes with one thread each."""
    epochs, rows = (3, 300) if quick else (4, 1200)
    with tempfile.TemporaryDirectory(prefix="splitwiper-") as folder:
        cases = {"one lane": (1, 1), "alone": (LANES, 1), "two ranks": (LANES, 2), "four ranks": (LANES, 4)}
        inputs = {lanes: _inputs(Path(folder) / str(lanes), lanes, epochs, rows) for lanes in (1, LANES)}
        seconds: dict[str, list[float]] = {case: [] for case in cases}
        digests: dict[str, str] = {}
        for _ in range(1 if quick else ROUNDS):
            for case, (lanes, ranks) in cases.items():
                took, digests[case] = _trained(inputs[lanes], ranks, Path(folder))
                seconds[case].append(took)
    best = {case: min(times) for case, times in seconds.items()}
    overhead, gain = best["alone"] / best["one lane"], best["alone"] / best["two ranks"]
    equal = digests["alone"] == digests["two ranks"] == digests["four ranks"]
    yield Result(
        {"lanes": LANES, "epochs": epochs, "rows": rows, "quick": quick},
        {"seconds of an epoch": seconds, "digests": digests, "overhead": overhead, "two against one": gain},
        [
            Check(f"{LANES} lanes on 1, 2 and 4 processes", "the same bits", "equal" if equal else "different", equal),
            Check(
                f"{LANES} lanes in one process against none", "≤ 1.2 ×", f"{overhead:.2f} ×", overhead <= 1.2 or quick
            ),
            Check(
                "two processes against one, one thread each", "≥ 1.5 × as fast", f"{gain:.2f} ×", gain >= 1.5 or quick
            ),
        ],
    )


def _inputs(root: Path, lanes: int, epochs: int, rows: int) -> TrainingInputs:
    """What the training of a VGG on digits takes."""
    server: dict[str, Any] = {"epochs": epochs, "batch": 256, "lanes": lanes, "threads": 1}
    work = workload(
        source="digits",
        model="vgg",
        model_args={"channels": 1, "side": 8, "width": 64},
        rows=rows,
        clients=3,
        server=server,
        client={"epochs": 1, "codec": "none", "threads": 1},
    )
    fed = Federation(root, config=work.config)
    fed.learn(work.train)
    return fed._server.inputs(fed._server.store.shards())


def _trained(inputs: TrainingInputs, ranks: int, folder: Path) -> tuple[float, str]:
    """Seconds of an epoch, without the first, and the digest of the result."""
    ends: list[float] = []
    engine = make_engine("distributed", ranks) if ranks > 1 else make_engine()
    trained = engine.train(inputs, folder=folder, on_epoch=lambda *_: ends.append(time.perf_counter()))
    return (ends[-1] - ends[0]) / (len(ends) - 1), state_digest(trained.state)
