"""An adversarial client over TLS: what it does, and whether others can still learn, forget, prove it and predict.

The attacker holds a client's valid certificate. For each kind of harm in `benchmarks/adversary` a new site
joins, another one forgets a class and has its certificate checked, a third predicts, and the server's store is verified
by recomputing; every step is a process of its own and must end with 0.
"""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.adversary import HARMS, Harm
from benchmarks.adversary.attacker import Attacker
from benchmarks.dishonest.stage import Scene, Stage
from benchmarks.harness import Check, Result
from splitwiper.store import ServerStore, ledger

QUICK = ("nobody", "huge values", "silent request", "costs for nothing")
STEPS = {
    "west joins": "join west.toml --site west",
    "north forgets": "forget north --class cat --certificate cert.json --patience 60",
    "the certificate holds": "verify cert.json --key north/north/server-keys",
    "north predicts": "predict north north north.csv --label label",
    "south predicts": "predict south south south.csv --label label",
}
AFTERWARDS = {"the store is exact": "verify store"}
"""Once the server has stopped."""
LIMITS = """
lapse = 0.0015
"""
"""Settings of the service beyond the usual: a silent request lapses after some five seconds."""
_LOG = 8 << 20
"""Bytes of the server's log at most, whatever the attacker does."""


_BUSY, _PATIENCE = 8, 30.0
"""The exit code where the model is forgetting, and seconds within which a call is repeated then, as users would."""


@dataclass(frozen=True)
class Step:
    """What a step of somebody else came to."""

    step: str
    code: int
    seconds: float
    said: str


def missing(*, quick: bool) -> str:
    """What this machine lacks."""
    del quick
    return "" if Path("/proc/self").exists() else "the processes of the scene are forked and watched as on Linux"


def run(*, quick: bool, only: str = "") -> Iterator[Result]:
    """Try every kind of harm.

    Args:
        quick: four of them.
        only: those whose name has this in it.
    """
    harms = [harm for harm in HARMS if only in harm.name and (not quick or harm.name in QUICK)]
    memory = Path("/dev/shm")  # noqa: S108
    with (
        tempfile.TemporaryDirectory(prefix="splitwiper-", dir=memory if memory.is_dir() else None) as folder,
        Stage(Path(folder), others=("west", "mallory"), limits=LIMITS) as stage,
    ):
        for harm in harms:
            yield _result(harm, *_tried(stage, harm))


def _tried(stage: Stage, harm: Harm) -> tuple[list[Step], list[str], int]:
    """Do the harm, and meanwhile what others do; returns their steps, what the attacker saw, and the log's size."""
    scene = stage.scene(harm.name)
    scene.serve([])
    try:
        with (
            Attacker(scene.url, stage.certs / "clients" / "mallory", scene.folder / "attacker") as attacker,
            harm.do(attacker),
        ):
            steps = [_step(scene, name, command) for name, command in STEPS.items()]
        scene.settled()  # what the attacker sent last is trained on, or set aside
    finally:
        scene.stop()
    steps += [_step(scene, name, command) for name, command in AFTERWARDS.items()]
    steps.append(_erased(scene))
    return steps, attacker.answers, scene.logged()


def _step(scene: Scene, name: str, command: str) -> Step:
    start = time.perf_counter()
    ended = scene.call(*shlex.split(command))
    while ended.code == _BUSY and time.perf_counter() - start < _PATIENCE:
        time.sleep(0.5)
        ended = scene.call(*shlex.split(command))
    said = [line for line in (ended.stderr + ended.stdout).splitlines() if line.strip()]
    return Step(name, ended.code, round(time.perf_counter() - start, 2), (said[-1] if said else "")[:300])


def _erased(scene: Scene) -> Step:
    """Whether the server erased a shard of somebody else than the attacker."""
    store = ServerStore(scene.folder / "store")
    others = {str(e["client"]) for e in ledger.entries(store.database) if e.get("by")} - {"mallory"}
    store.database.close()
    return Step("only the attacker's shards were erased", int(bool(others)), 0.0, ", ".join(sorted(others)))


def _result(harm: Harm, steps: list[Step], answers: list[str], logged: int) -> Result:
    failed = [f"{step.step}: exit {step.code} ({step.said})" for step in steps if step.code]
    if logged > _LOG:
        failed.append(f"the log has {logged:,} bytes")
    longest = max(steps, key=lambda step: step.seconds)
    took = f"longest step {longest.seconds:.1f} s"
    told = (
        "; ".join(failed) if failed else f"nobody harmed ({answers[-1][:100] if answers else 'nothing sent'}; {took})"
    )
    return Result(
        {"harm": harm.name},
        {"does": harm.does, "steps": [asdict(step) for step in steps], "answers": answers[:20], "log bytes": logged},
        [Check(harm.does, "learning, forgetting, proof and predictions go on", told, not failed)],
    )
