"""The scene: a server process, sites and an auditor, each command of theirs a process of its own, over TLS on loopback.

A federation of two sites is made once, honestly; every scenario begins with a copy of it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from benchmarks.harness import ROOT
from splitwiper.service.identity import Authority
from splitwiper.store import ClientStore, ServerStore

EPOCHS = 4
FEATURES = 6
LABELS = {"north": ("bird", "cat", "dog"), "south": ("cat", "dog")}
"""The rows of each site. Another site also holds the labels that north forgets, so outputs do not change."""
LENIENT = """
rate = 10000.0
burst = 10000
"""
"""Limits that no scenario of a dishonest server meets."""
MODEL = f"""
[model]
factory = "splitwiper.models:mlp"
args = {{inputs = {FEATURES}, outputs = 3, hidden = 12, cut = 8}}
inputs = {{x = "float32[{FEATURES}]"}}
at = "stem"
head = "head"
"""
_SERVER = """
seed = 5
{model}
[server]
epochs = {epochs}
batch = 16
threads = 1
transcript = true
[service]
port = {port}
certs = "{certs}/server"
coalesce = 0.1
{limits}
"""
_SITE = """
name = "{name}"
url = "https://127.0.0.1:{port}"
certs = "{certs}/clients/{name}"
data = "{name}.csv"
label = "label"
spot_check = 1.0
{model}
[client]
epochs = 2
batch = 8
head_width = 4
threads = 1
"""
_AUDITOR = """
name = "tuv"
url = "https://127.0.0.1:{port}"
certs = "{certs}/auditors/tuv"
sites = "site-keys"

{model}
"""
_ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "1000",
}


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, and what it printed."""

    code: int
    stdout: str
    stderr: str


class Processes:
    """Starts processes: forked from one that has imported everything, or each with an interpreter of its own.

    Args:
        folder: for what they print.
        fresh: an interpreter for each, as users start them.
    """

    def __init__(self, folder: Path, *, fresh: bool = False) -> None:
        self._folder, self._fresh, self._count = folder, fresh, 0
        folder.mkdir(parents=True, exist_ok=True)
        self._command = [sys.executable, "-m", "benchmarks.dishonest.process"]
        self._forker: subprocess.Popen[str] | None = None
        self._servers: dict[int, subprocess.Popen[bytes]] = {}
        self._log = folder
        if not fresh:
            self._forker = subprocess.Popen(  # noqa: S603
                self._command, env=_ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )

    def run(self, arguments: Sequence[str | Path], folder: Path) -> Ended:
        """Run a command of the command line to its end."""
        order = self._order((), arguments, folder)
        if self._fresh:
            with Path(order["stdout"]).open("wb") as out, Path(order["stderr"]).open("wb") as err:
                command = [*self._command, "--", *order["arguments"]]
                done = subprocess.run(command, cwd=folder, env=_ENVIRONMENT, stdout=out, stderr=err, check=False)  # noqa: S603
            ended = done.returncode
        else:
            ended = self._ordered(order)
        return Ended(ended, *(Path(order[name]).read_text(encoding="utf-8") for name in ("stdout", "stderr")))

    def serve(self, lies: Sequence[str], arguments: Sequence[str | Path], folder: Path) -> int:
        """Start a server, and return its process number when it listens."""
        order = self._order(lies, arguments, folder)
        self._log = Path(order["stderr"])
        if self._fresh:
            with Path(order["stdout"]).open("wb") as out, Path(order["stderr"]).open("wb") as err:
                command = [*self._command, *lies, "--", *order["arguments"]]
                server = subprocess.Popen(command, cwd=folder, env=_ENVIRONMENT, stdout=out, stderr=err)  # noqa: S603
            pid = server.pid
            self._servers[pid] = server
        else:
            pid = self._ordered(order)
        end = time.monotonic() + 60
        while "Serving" not in (Path(order["stdout"]).read_text() if Path(order["stdout"]).exists() else ""):
            if time.monotonic() > end or not Path(f"/proc/{pid}").exists():
                raise RuntimeError(f"the server did not start: {Path(order['stderr']).read_text()[-2000:]}")
            time.sleep(0.02)
        return pid

    def logged(self) -> int:
        """Return how many bytes the last server logged."""
        return self._log.stat().st_size

    def stop(self, pid: int) -> None:
        """Have a server end in good order."""
        if self._fresh:
            server = self._servers.pop(pid)
            server.terminate()
            server.wait(60)
        else:
            self._ordered({"stop": pid})

    def close(self) -> None:
        """End the forking process."""
        if self._forker is not None and self._forker.stdin and self._forker.stdout:
            self._forker.stdin.close()
            self._forker.wait(60)
            self._forker.stdout.close()

    def _order(self, lies: Sequence[str], arguments: Sequence[str | Path], folder: Path) -> dict[str, Any]:
        self._count += 1
        files = {name: str(self._folder / f"{self._count}.{name}") for name in ("stdout", "stderr")}
        return {"lies": list(lies), "arguments": [str(one) for one in arguments], "folder": str(folder), **files}

    def _ordered(self, order: dict[str, Any]) -> int:
        if self._forker is None or not self._forker.stdin or not self._forker.stdout:
            raise AssertionError("the process that forks has ended")
        self._forker.stdin.write(json.dumps(order) + "\n")
        self._forker.stdin.flush()
        return int(self._forker.stdout.readline())


class Stage:
    """A federation that every scenario starts from.

    Args:
        folder: for everything.
        fresh: whether processes have interpreters of their own.
        others: clients that have a certificate and have not joined.
        limits: settings of the service.
    """

    def __init__(self, folder: Path, *, fresh: bool = False, others: Sequence[str] = (), limits: str = LENIENT) -> None:
        self.folder, self.base, self.certs, self._limits = folder, folder / "base", folder / "certs", limits
        self._sites = {**LABELS, **dict.fromkeys(others, ("cat", "dog"))}
        authority = Authority.create(self.certs, "dishonest", hosts=["127.0.0.1"])
        for name in self._sites:
            authority.issue_client(name)
        authority.issue_auditor("tuv")
        self.processes = Processes(folder / "printed", fresh=fresh)
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = int(free.getsockname()[1])
        self._make()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, kind: type[BaseException] | None, _problem: object, _trace: TracebackType | None) -> None:
        self.processes.close()

    def _make(self) -> None:
        self.base.mkdir()
        given = {"port": self.port, "certs": self.certs.resolve(), "model": MODEL, "epochs": EPOCHS}
        (self.base / "server.toml").write_text(_SERVER.format(**given, limits=self._limits), encoding="utf-8")
        (self.base / "tuv.toml").write_text(_AUDITOR.format(**given), encoding="utf-8")
        for number, (name, labels) in enumerate(self._sites.items()):
            (self.base / f"{name}.toml").write_text(_SITE.format(name=name, **given), encoding="utf-8")
            (self.base / f"{name}.csv").write_text(_rows(number, labels), encoding="utf-8")
        scene = Scene(self, self.base)
        scene.serve([])
        for name in LABELS:
            done = scene.call("join", f"{name}.toml", "--site", name)
            if done.code:
                raise RuntimeError(f"{name} could not join: {done.stderr}")
            (self.base / "site-keys").mkdir(exist_ok=True)
            shutil.copy(self.base / name / name / "request-key.pub.pem", self.base / "site-keys" / f"{name}.pem")
        scene.settled()
        scene.stop()

    def scene(self, name: str) -> Scene:
        """Copy the federation for one scenario; ``kept`` in it is a copy of the store."""
        folder = self.folder / "scenes" / name.replace(" ", "-")
        shutil.copytree(self.base, folder)
        shutil.copytree(folder / "store", folder / "kept")
        return Scene(self, folder)


class Scene:
    """One federation: its server, which tells lies, and the commands of the others."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self._stage, self.folder, self._pid = stage, folder, 0
        self.url = f"https://127.0.0.1:{stage.port}"

    def serve(self, lies: Sequence[str], store: str = "store") -> None:
        """Start the server, or another one in its place."""
        self.stop()
        self._pid = self._stage.processes.serve(lies, ["serve", "server.toml", "--store", store], self.folder)

    def stop(self) -> None:
        """Stop the server."""
        if self._pid:
            self._stage.processes.stop(self._pid)
            self._pid = 0

    def logged(self) -> int:
        """Return how many bytes the last server logged."""
        return self._stage.processes.logged()

    def call(self, *arguments: str) -> Ended:
        """Run a command in the scene's folder."""
        return self._stage.processes.run(arguments, self.folder)

    def settled(self, store: str = "store") -> None:
        """Wait until the model is that of the shards."""
        server_store, end = ServerStore(self.folder / store), time.monotonic() + 60
        while not server_store.is_current() or server_store.model() is None:
            if time.monotonic() > end:
                raise RuntimeError("the worker did not finish")
            time.sleep(0.05)
        server_store.database.close()

    def leak(self) -> None:
        """Let countersigned heads of one store be relayed by the other."""
        with closing(sqlite3.connect(self.folder / "store" / "service.db")) as db:
            rows = db.execute("SELECT * FROM witnesses").fetchall()
        with closing(sqlite3.connect(self.folder / "kept" / "service.db")) as db, db:
            db.executemany("INSERT OR REPLACE INTO witnesses VALUES (?, ?, ?, ?, ?, ?)", rows)

    def ticket(self) -> str:
        """North's newest request."""
        server_store = ClientStore(self.folder / "north" / "north")
        ticket = str(server_store.requests("open", "sent", "done")[-1]["ticket"])
        server_store.database.close()
        return ticket


def _rows(seed: int, labels: Sequence[str], count: int = 30) -> str:
    """Rows around one centre for each label, as CSV."""
    draw = np.random.default_rng(seed)
    lines = [",".join([*(f"x{n}" for n in range(FEATURES)), "label"])]
    for number in range(count):
        label = labels[number % len(labels)]
        centre = np.random.default_rng(sum(map(ord, label))).normal(size=FEATURES)
        values = centre + 0.3 * draw.normal(size=FEATURES)
        lines.append(",".join([*(f"{value:.4f}" for value in values), label]))
    return "\n".join(lines) + "\n"
