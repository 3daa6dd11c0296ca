"""What proving costs: learning, forgetting, verifying and uploading, compared with the last version without proofs.

Each round runs the same work with the source tree of an earlier commit and with this one, one after the other, each in
a process of its own, so that both meet the same machine. Ratios are of the fastest rounds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Check, Result

BASE = "207d7ff"
"""The last commit whose `verify` trusted the records of a run."""
STEPS = ("learn", "unlearn", "verify the receipt", "verify the run", "upload")
LIMIT = 1.1
_CHILD = (
    "import json, sys; from benchmarks.suite import checks; print(json.dumps(checks.work(**json.loads(sys.argv[1]))))"
)


def missing(*, quick: bool = False) -> str:
    """It needs the earlier commit."""
    found = subprocess.run(["git", "cat-file", "-e", BASE], cwd=ROOT, capture_output=True, check=False)  # noqa: S603, S607
    return "" if found.returncode == 0 else f"commit {BASE} is not in this clone"


def run(*, quick: bool) -> Iterator[Result]:
    """Measure both, in turn."""
    rounds, rows = (1, 60) if quick else (7, 1500)
    with tempfile.TemporaryDirectory(prefix="splitwiper-") as folder:
        base = Path(folder) / "base"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", base, BASE], cwd=ROOT, check=True)  # noqa: S603, S607
        try:
            stores = {"before": base, "now": ROOT}
            found: dict[str, list[dict[str, float]]] = {name: [] for name in stores}
            for _ in range(rounds):
                for name, store in stores.items():
                    found[name].append(_measured(store, rows))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", base], cwd=ROOT, check=True)  # noqa: S603, S607
    best = {name: {step: min(each[step] for each in times) for step in STEPS} for name, times in found.items()}
    ratios = {step: best["now"][step] / best["before"][step] for step in STEPS}
    yield Result(
        {"rows": rows, "rounds": rounds, "base": BASE},
        {"seconds": found, "ratios": ratios},
        [
            Check(f"{step}, against {BASE}", f"≤ {LIMIT} ×", f"{ratio:.2f} ×", ratio <= LIMIT)
            for step, ratio in ratios.items()
        ],
    )


def _measured(store: Path, rows: int) -> dict[str, float]:
    """Run the work with a source tree, in a process of its own; this file is the same for both."""
    environment = {**os.environ, "PYTHONPATH": f"{store / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _CHILD, json.dumps({"rows": rows})]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def work(rows: int) -> dict[str, float]:
    """Learn digits with three clients, forget a class, verify, and upload to a real server; seconds of each."""
    import numpy as np
    from sklearn.datasets import load_digits

    from splitwiper import ClientConfig, Config, Federation, ModelConfig, ServerConfig

    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)[:rows]
    names = digits.target[:rows]
    data = {name: (images[place::3], names[place::3]) for place, name in enumerate(("north", "south", "west"))}
    model = ModelConfig(factory="splitwiper.models:digits_cnn", inputs={"x": "float32[1,8,8]"}, at="stem", head="head")
    config = Config(
        seed=3,
        model=model,
        server=ServerConfig(epochs=15, threads=1),
        client=ClientConfig(epochs=5, slices=3, threads=1),
    )
    out = {}
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="splitwiper-", dir=memory if memory.is_dir() else None) as folder:
        fed = Federation(Path(folder) / "run", config=config)
        with _timed(out, "learn"):
            fed.learn(data)
        with _timed(out, "unlearn"):
            receipt = fed.unlearn("north", classes=[3])
        with _timed(out, "verify the receipt"):
            found = fed.verify(receipt)
        with _timed(out, "verify the run"):
            whole = fed.verify()
        if not (found.exact and whole.exact):
            raise RuntimeError(f"{found.reason}; {whole.reason}")
        _upload(Path(folder), out, rows)
    return out


@contextmanager
def _timed(out: dict[str, float], step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    out[step] = time.perf_counter() - start


_SERVER = """
seed = 1
[model]
factory = "splitwiper.models:mlp"
args = {inputs = 16, outputs = 4, hidden = 32, cut = 1024}
inputs = {x = "float32[16]"}
at = "stem"
head = "head"
[server]
epochs = 1
batch = 4096
threads = 1
[service]
port = 0
certs = "certs/server"
coalesce = 86400.0
"""


def _upload(root: Path, out: dict[str, float], rows: int) -> None:
    """A site joins a server and sends its shard; the worker stays idle."""
    import numpy as np

    from splitwiper.config import ClientConfig, ModelConfig
    from splitwiper.service.identity import Authority
    from splitwiper.service.site import SiteConfig, join

    authority = Authority.create(root / "certs", "bench", hosts=["127.0.0.1"])
    authority.issue_client("north")
    (root / "server.toml").write_text(_SERVER, encoding="utf-8")
    command = [
        sys.executable,
        "-c",
        "from splitwiper.cli import main; main()",
        "serve",
        "server.toml",
        "--store",
        "store",
    ]
    quiet: Any = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=quiet, text=True) as process:  # noqa: S603
        try:
            url = (process.stdout.readline() if process.stdout else "").split()[1]
            model = ModelConfig(
                factory="splitwiper.models:mlp",
                args={"inputs": 16, "outputs": 4, "hidden": 32, "cut": 1024},
                inputs={"x": "float32[16]"},
                at="stem",
                head="head",
            )
            settings = SiteConfig(name="north", url=url, certs=str(root / "certs/clients/north"), model=model)
            draw = np.random.default_rng(0)
            x, y = draw.normal(size=(rows * 20, 16)).astype(np.float32), draw.integers(0, 4, rows * 20)
            with _timed(out, "upload"):
                site = join(root / "site", settings, ClientConfig(epochs=1, batch=1024, threads=1))
                site.learn((x, y))
            site.close()
        finally:
            process.terminate()
