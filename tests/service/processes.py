"""The service as processes: a server that is started, killed and started again, and clients' sites."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

import warm
from federation.runs import FEATURES, Table, three
from service.serving import certificates
from splitwiper.config import ClientConfig, ModelConfig
from splitwiper.seeding import state_digest
from splitwiper.service.site import Site, SiteConfig, join
from splitwiper.store import ServerStore

MODEL = {
    "factory": "splitwiper.models:mlp",
    "args": {"inputs": FEATURES, "outputs": 3, "hidden": 12, "cut": 8},
    "inputs": {"x": f"float32[{FEATURES}]"},
    "at": "stem",
    "head": "head",
}
MODEL_TOML = f"""
[model]
factory = "splitwiper.models:mlp"
args = {{inputs = {FEATURES}, outputs = 3, hidden = 12, cut = 8}}
inputs = {{x = "float32[{FEATURES}]"}}
at = "stem"
head = "head"
"""
"""The same in a file of settings."""
SERVER = f"""
seed = 5
{MODEL_TOML}
[server]
epochs = EPOCHS
batch = 16
threads = 1
numerics = "NUMERICS"
[service]
port = PORT
certs = "certs/server"
coalesce = 0.1
rate = 10000.0
burst = 10000
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


class Running:
    """A server process over a folder; it can be killed and started again on the same port."""

    def __init__(
        self,
        folder: Path,
        *,
        epochs: int = 2,
        store: Path | str = "store",
        signed: bool = True,
        numerics: str = "native",
        cold: bool = False,
        port: int = 0,
        environment: Mapping[str, str] = ENVIRONMENT,
        more: str = "",
    ) -> None:
        self.folder, self.port, self._epochs, self._store, self._signed = folder, port, epochs, str(store), signed
        self._numerics, self._cold, self._environment = numerics, cold or numerics != "native", environment
        self._more = more
        self.certs = certificates(folder / "certs")
        self.process: warm.Process | subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        text = SERVER.replace("PORT", str(self.port)).replace("EPOCHS", str(self._epochs))
        text = text.replace("NUMERICS", self._numerics)
        text += f"signed = {str(self._signed).lower()}\nreserve = 0.0\n{self._more}\n"
        (self.folder / "server.toml").write_text(text, encoding="utf-8")
        command = ["splitwiper", "serve", "server.toml", "--store", self._store]
        with (self.folder / "server.log").open("a", encoding="utf-8") as log:
            self.process = self._process(command, log)
        line = self.process.stdout.readline()
        if not line.startswith("Serving https://127.0.0.1:"):
            self.kill()  # what is left running would be held against another test
            raise AssertionError((self.folder / "server.log").read_text()[-2000:])
        self.url = line.split()[1]
        self.port = int(self.url.rpartition(":")[2])

    def _process(self, command: list[str], log: IO[str]) -> warm.Process | subprocess.Popen[str]:
        if not self._cold:
            return warm.start(command, cwd=self.folder, env=self._environment, stdout=subprocess.PIPE, stderr=log)
        command[0] = str(Path(sys.executable).with_name(command[0]))
        return subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment
        )

    def kill(self) -> None:
        """As by power cut: the service; its worker notices and ends by itself."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)
        self.process.stdout.close()

    def worker(self) -> int | None:
        """The worker's process id."""
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                parent = re.search(r"^PPid:\s(\d+)$", (entry / "status").read_text(), re.MULTILINE)
                command = (entry / "cmdline").read_bytes().split(b"\0")
                name = (entry / "comm").read_text().strip()
            except OSError:
                continue
            ours = parent is not None and int(parent[1]) == self.process.pid
            if ours and (name == warm.WORKER or b"splitwiper.service" in command):
                return int(entry.name)
        return None

    def kill_worker(self) -> bool:
        """The worker alone."""
        if (found := self.worker()) is not None:
            os.kill(found, signal.SIGKILL)
        return found is not None

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(60)
        self.process.stdout.close()
        return code

    def replace_store(self, other: Path) -> None:
        """Stop, put a copy of another store in place, and start again."""
        self.stop()
        shutil.rmtree(self.folder / self._store)
        shutil.copytree(other, self.folder / self._store)
        self.start()

    def backup(self, target: Path) -> Path:
        """Copy the store while the server is stopped."""
        self.stop()
        shutil.copytree(self.folder / self._store, target)
        self.start()
        return target

    def calls(self) -> list[str]:
        """The methods and routes of all calls so far, from the log."""
        lines = (self.folder / "server.log").read_text(encoding="utf-8").splitlines()
        told = [json.loads(line) for line in lines if line.startswith("{")]
        return [f"{one['method']} {one['route']}" for one in told if one.get("message") == "call"]

    def site(
        self,
        name: str,
        *,
        folder: Path | None = None,
        invitation: str | None = None,
        keys: str = "seeded",
        **client: object,
    ) -> Site:
        """A client's site, joined."""
        config = SiteConfig(
            name=name, url=self.url, certs=str(self.certs / "clients" / name), model=ModelConfig(**MODEL)
        )
        own = ClientConfig(epochs=2, batch=8, head_width=4, threads=1, keys=keys, **client)
        return join(folder or self.folder / "sites" / name, config, own, invitation=invitation)


def settled(store: Path, *, seconds: float = 60) -> ServerStore:
    """The server's store, once its model is that of its shards."""
    server_store, end = ServerStore(store), time.monotonic() + seconds
    while not server_store.is_current() or server_store.model() is None:
        assert time.monotonic() < end, "the worker did not finish"
        time.sleep(0.05)
    return server_store


def weights(store: Path) -> str:
    """The digest of the model's weights."""
    server_store = ServerStore(store)
    return state_digest(server_store.weights(server_store.model()))


def data() -> dict[str, Table]:
    return three()


def answers(site: Site, rows: np.ndarray) -> list[str | int]:
    """Predictions, once the server has a model."""
    from splitwiper.errors import BusyError, NotFoundError

    end = time.monotonic() + 60
    while True:
        try:
            return site.predict(site.config.name, rows)
        except (NotFoundError, BusyError):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
