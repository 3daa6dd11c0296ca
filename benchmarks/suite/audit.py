"""What an audit over the network costs, of the training it audits, and how often it catches a server that lies.

Costs are measured with a server process and audit processes: recomputing by the clock, as the server measures its
training, and what is downloaded, of what the sites uploaded. Detection is measured with the auditing functions in this
process, since hundreds of draws over the network would measure the network: a transcript is made in which some epochs
do not follow from those before, consistent in form, and random draws of its epochs are really recomputed.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from torch import Tensor

from benchmarks.harness import ROOT, Check, Result
from splitwiper import ClientConfig, Config, Federation, ServerConfig
from splitwiper.config import ModelConfig
from splitwiper.federation.build import build_halves
from splitwiper.formats import size
from splitwiper.numerics import pick_device, reproducible
from splitwiper.seeding import state_digest
from splitwiper.server import Server
from splitwiper.server.training import TrainingInputs, first_state, train_epochs, weights_in
from splitwiper.server.transcript import Transcript, check_end, check_first, detection, recompute_epoch, sample_epochs
from splitwiper.store import ServerStore
from splitwiper.training.loop import Span

INPUTS, LABELS = 64, 10
SITES = ("north", "south")
_SURE = 3.29
"""Standard deviations of an interval that misses one time in a thousand."""


def missing(*, quick: bool = False) -> str:
    """It needs the service extra."""
    return "" if importlib.util.find_spec("uvicorn") else "the package's service extra is not installed"


def run(*, quick: bool, only: str = "") -> Iterator[Result]:
    """Measure costs, then detection."""
    if only in "costs":
        yield _costs(*((200, 16, 3, 1) if quick else (20_000, 256, 20, 5)))
    if only in "detection":
        epochs, draws = (4, 20) if quick else (10, 400)
        for forged in (1,) if quick else (1, 2, 5):
            yield _detection(epochs, forged, (1, 2) if quick else (1, 3, 5), draws)


# --- what it costs -----------------------------------------------------------------------------------------------


def _model(hidden: int) -> dict[str, Any]:
    args = {"inputs": INPUTS, "outputs": LABELS, "hidden": hidden, "cut": 128}
    inputs = {"x": f"float32[{INPUTS}]"}
    return {"factory": "splitwiper.models:mlp", "args": args, "inputs": inputs, "at": "stem", "head": "head"}


def _toml(model: Mapping[str, Any]) -> str:
    def value(given: Any) -> str:
        if isinstance(given, dict):
            return "{" + ", ".join(f"{key} = {json.dumps(one)}" for key, one in given.items()) + "}"
        return json.dumps(given)

    return "[model]\n" + "".join(f"{key} = {value(given)}\n" for key, given in model.items())


def _costs(rows: int, hidden: int, epochs: int, rounds: int) -> Result:
    """Train again in every round, and audit one epoch, a fifth of them, all of them, and the whole training."""
    from splitwiper.service.identity import Authority
    from splitwiper.service.site import SiteConfig, join

    few, model, draw = max(2, epochs // 5), _model(hidden), np.random.default_rng(0)
    kinds = {"one": ("--epochs", "1"), "few": ("--epochs", str(few)), "each": ("--epochs", str(epochs)), "all": ()}
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    walls: dict[str, list[float]] = {kind: [] for kind in kinds}
    received = dict.fromkeys(kinds, 0)
    exact, training = True, []
    with tempfile.TemporaryDirectory(prefix="splitwiper-") as folder:
        root = Path(folder)
        authority = Authority.create(root / "certs", "bench", hosts=["127.0.0.1"])
        authority.issue_auditor("tuv")
        with _served(root, model, epochs) as url:
            (root / "tuv.toml").write_text(f'name = "tuv"\nurl = "{url}"\ncerts = "certs/auditors/tuv"\n{_toml(model)}')
            for number in range(rounds):
                for name in SITES if number == 0 else SITES[:1]:
                    if number == 0:
                        authority.issue_client(name)
                    settings = SiteConfig(
                        name=name, url=url, certs=str(root / "certs/clients" / name), model=ModelConfig(**model)
                    )
                    with closing(join(root / name, settings, ClientConfig(epochs=1, threads=1))) as site:
                        count = rows // 2 if number == 0 else 8  # a few more rows make the server train again
                        site.learn((draw.random((count, INPUTS), dtype=np.float32), np.arange(count) % LABELS))
                training.append(_trained(root / "store"))
                for kind, words in list(kinds.items())[:: -1 if number % 2 else 1]:
                    start = time.perf_counter()
                    found = _audited(root, *words)
                    walls[kind].append((time.perf_counter() - start) / training[-1])
                    times[kind].append(found["seconds"] / training[-1])
                    received[kind], exact = found["bytes"], exact and found["outcome"] in ("holds", "exact")
            server_store = ServerStore(root / "store")
            sent = sum(shard.size for shard in server_store.shards())
            server_store.database.close()
            states = [file.stat().st_size for file in (root / "store" / "epochs").iterdir()]
    middle = {kind: median(values) for kind, values in times.items()}
    names = {"one": "1 epoch", "few": f"{few} epochs", "each": f"each of {epochs} epochs", "all": "the whole training"}
    checks = [
        Check(
            f"audit of {names[kind]}: recomputing, of training; downloads, of uploads",
            "equal, bit for bit",
            f"{middle[kind]:.2f} × the time ({min(times[kind]):.2f} to {max(times[kind]):.2f}; "
            f"{median(walls[kind]):.2f} with the process and its downloads), {received[kind] / sent:.2f} × the bytes",
            exact,
        )
        for kind in kinds
    ]
    kept = f"{size(sum(states))} for {epochs} epochs, {sum(states) / sent:.2f} × the shards"
    checks.append(Check("states that the server keeps for auditors", "reported", kept, True))
    return Result(
        {"part": "costs", "rows": rows, "hidden": hidden, "epochs": epochs, "few": few, "rounds": rounds},
        {
            "training_seconds": training,
            "recomputing": times,
            "whole_process": walls,
            "received": received,
            "sent": sent,
            "states_bytes": sum(states),
            "exact": exact,
        },
        checks,
    )


@contextmanager
def _served(root: Path, model: Mapping[str, Any], epochs: int) -> Iterator[str]:
    text = f"seed = 1\n{_toml(model)}[server]\nepochs = {epochs}\nbatch = 64\nthreads = 1\n[service]\nport = 0\n"
    (root / "server.toml").write_text(f'{text}certs = "certs/server"\ncoalesce = 0.1\nrate = 10000.0\nburst = 10000\n')
    with subprocess.Popen(  # noqa: S603
        _command("serve", "server.toml", "--store", "store"),
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=_environment(),
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            yield line.split()[1]
        finally:
            process.terminate()


def _audited(root: Path, *words: str) -> dict[str, Any]:
    """Run an audit as a process, and return what it says."""
    command = _command("audit", "tuv.toml", "--out", "audit", "--json", *words)
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, env=_environment(), check=True)  # noqa: S603
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from splitwiper.cli import main; main()", *words]


def _environment() -> dict[str, str]:
    """The same package in processes with another working folder, where it is not installed."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


def _trained(store: Path) -> float:
    """Wait until the model is that of the shards, and return the seconds that its training took."""
    server_store, end = ServerStore(store), time.monotonic() + 600
    with closing(server_store.database):
        while not server_store.is_current() or (model := server_store.model()) is None:
            if time.monotonic() > end:
                raise TimeoutError("the server did not finish its training in 10 minutes")
            time.sleep(0.1)
        return model.seconds


# --- how often it catches ----------------------------------------------------------------------------------------


def _detection(epochs: int, forged: int, sampled: tuple[int, ...], draws: int) -> Result:
    """Forge some epochs of a training, and recompute random draws of them, many times."""
    draw = np.random.default_rng(forged)
    config = Config(
        model=ModelConfig(**_model(16)),
        server=ServerConfig(epochs=epochs, batch=16, threads=1),
        client=ClientConfig(epochs=1, threads=1, keys="seeded"),
    )
    halves, caught = build_halves(config), dict[int, int]()
    with tempfile.TemporaryDirectory(prefix="splitwiper-") as folder:
        fed = Federation(Path(folder) / "run", halves, config)
        fed.learn({name: (draw.random((40, INPUTS), dtype=np.float32), np.arange(40) % 4) for name in SITES})
        server = Server(ServerStore(fed.path / "server"), halves.server)
        with reproducible(pick_device("cpu"), 1):
            inputs = server.inputs(server.store.shards())
            false = {int(epoch) for epoch in draw.choice(np.arange(1, epochs + 1), forged, replace=False)}
            states = _states(inputs, epochs, false)
            for count in sampled:
                caught[count] = sum(_is_caught(inputs, states, count) for _ in range(draws))
            honest = _is_caught(inputs, _states(inputs, epochs, set()), epochs)
    checks = []
    for count, times in caught.items():
        low, high, said = *_interval(times, draws), detection(epochs, count, forged)
        checks.append(
            Check(
                f"{forged} of {epochs} epochs forged, {count} drawn: caught in {draws} draws",
                f"the formula's {said:.3f} within the 99.9 % interval; an honest server never",
                f"{times / draws:.3f} ({low:.3f} to {high:.3f})",
                low <= said <= high and not honest,
            )
        )
    return Result(
        {"part": "detection", "epochs": epochs, "forged": forged, "draws": draws},
        {"caught": caught, "formula": {count: detection(epochs, count, forged) for count in sampled}},
        checks,
    )


def _states(inputs: TrainingInputs, epochs: int, false: set[int]) -> list[dict[str, Tensor]]:
    """Train epoch by epoch, and continue from an altered state after each forged epoch, as a lying server would."""
    states = [dict(first_state(inputs))]
    for epoch in range(1, epochs + 1):
        state = dict(train_epochs(inputs, Span(epoch - 1, epoch, states[-1])))
        if epoch in false:
            state = {name: t + 1e-3 if t.is_floating_point() else t for name, t in state.items()}
        states.append(state)
    return states


def _is_caught(inputs: TrainingInputs, states: list[dict[str, Tensor]], count: int) -> bool:
    """Audit a random choice of epochs as `splitwiper audit --epochs` does, without the network."""
    transcript = Transcript(tuple(map(state_digest, states)))
    checks = [check_first(inputs, transcript)]
    checks.append(check_end(inputs, transcript, states[-1], state_digest(weights_in(inputs, states[-1]))))
    for epoch in sample_epochs(transcript.epochs, count):
        checks.append(recompute_epoch(inputs, transcript, epoch, states[epoch - 1]))
    return not all(check.exact for check in checks)


def _interval(hits: int, draws: int) -> tuple[float, float]:
    """Wilson's interval for a binomial share.

    >>> [round(value, 3) for value in _interval(50, 100)]
    [0.343, 0.657]
    """
    share, z = hits / draws, _SURE**2 / draws
    middle, half = (share + z / 2) / (1 + z), math.sqrt(z * (share * (1 - share) + z / 4)) / (1 + z)
    return max(0.0, middle - half), min(1.0, middle + half)
