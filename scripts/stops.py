"""Count the stops on a row's way in, from the command line to the trained model, and record them in results/tree.md.

    python scripts/stops.py [--list] [--record REVISION]

A row's way has landmarks: functions that every row passes, such as where its HMAC is computed or where its shard is
written. Whoever reads the way follows the calls from the command to each landmark. A *stop* is a function of the
product on one of these paths: whatever is on the stack when a landmark is called, the landmark included. Lambdas and
comprehensions belong to the function that they are in. For `join`, the threads of a server in this process count too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
import tomllib
from contextlib import chdir
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "results" / "tree.md"
TITLE = "## A row's way in"
LANDMARKS = (
    "as_rows",  # a row gets its form
    "check_rows",  # it is tried on the half
    "row_macs",  # it gets its HMAC
    "rewrite_slice",  # it is stored in its slice
    "Cache.gather",  # it is read: for pre-training, for embedding, and for the server's training
    "plan_for",  # its place and code in the shard
    "write_shard",  # its slice and its shard are written
    "Server.upload",  # the server takes it in
    "ServerStore.accept",  # it is in the manifest
    "ServerStore.publish",  # the model that has seen it
)
ON_THE_NETWORK = (
    ("site/link.py", "HttpsLink.upload"),  # the shard is sent
    ("api/uploads.py", "begin"),  # the routes that receive it
    ("api/uploads.py", "send"),
    ("api/uploads.py", "finish"),
)
"""Landmarks of `join`: the end of a file's path, and a name in it."""
CLASSES = "abc"
COMMON = """
seed = 1
[model]
factory = "splitwiper.models:mlp"
args = {inputs = 4, outputs = 3}
inputs = {x = "float32[4]"}
at = "stem"
head = "head"
"""


class Walk:
    """Collects the product's functions on the stack at each landmark, in all threads."""

    def __init__(self) -> None:
        self.stops: dict[tuple[str, str], None] = {}
        self.reached: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call of a landmark: a profiler's hook."""
        if event != "call" or not self._is_landmark(frame):
            return
        path: list[tuple[str, str]] = []
        here: FrameType | None = frame
        while here is not None:
            _, found, file = here.f_code.co_filename.rpartition("src/splitwiper/")
            name = here.f_code.co_qualname.replace(".<locals>", "").replace(".<lambda>", "").partition(".<")[0]
            if found and not name.startswith("<"):
                path.append((file, name))
            here = here.f_back
        self.stops |= dict.fromkeys(reversed(path))

    def _is_landmark(self, frame: FrameType) -> bool:
        name, file = frame.f_code.co_qualname, frame.f_code.co_filename
        if name in LANDMARKS:
            self.reached.add(name)
            return True
        return any(file.endswith(place) and name == known for place, known in ON_THE_NETWORK)

    def __enter__(self) -> Walk:
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def data(path: Path, seed: int) -> None:
    """Write the rows of a client."""
    rows = np.random.default_rng(seed).normal(size=(30, 4)).astype(np.float32)
    np.savez(path, inputs=rows, labels=np.array(list(CLASSES))[np.arange(30) % 3])


def learn() -> Walk:
    """Follow rows through `splitwiper learn`."""
    from splitwiper.cli.learn import learn as command

    data(Path("north.npz"), 1)
    clients = '[client]\nepochs = 1\n[server]\nepochs = 1\nbatch = 8\n[clients.north]\ndata = "north.npz"\n'
    Path("run.toml").write_text(COMMON + clients, encoding="utf-8")
    with Walk() as walk:
        command(Path("run.toml"), Path("run"), seed=None, data=None, as_json=True)
    return walk


def join() -> Walk:
    """Follow rows through `splitwiper join`, and through a server in this process."""
    from splitwiper import Config, Federation
    from splitwiper.cli.join import join as command
    from splitwiper.config import from_dict
    from splitwiper.service.api import Service, create_app
    from splitwiper.service.connections.access import Authenticator
    from splitwiper.service.connections.listening import ConnectionLimits, HttpServer, listen
    from splitwiper.service.identity import Authority, Trust, server_context
    from splitwiper.service.settings import ServiceConfig
    from splitwiper.service.worker import work

    Authority.create(Path("certs"), "stops", hosts=["127.0.0.1"]).issue_client("north")
    config = from_dict(Config, tomllib.loads(COMMON) | {"server": {"epochs": 1, "batch": 8}})
    made = Federation("run", config=config)
    root, settings, stop = Path("run/server"), ServiceConfig(coalesce=0.0), threading.Event()
    service = Service(root, made.halves.server, settings, Authenticator(trust=Trust(Path("certs/server"))))
    server = HttpServer(
        create_app(service),
        listen("127.0.0.1", 0),
        ConnectionLimits(),
        secured=lambda: server_context(Path("certs/server"), revoked=True),
    )
    data(Path("north.npz"), 1)
    with Walk() as walk:
        threads = [threading.Thread(target=server.run, daemon=True)]
        threads += [threading.Thread(target=work, args=(root, made.halves.server, settings), kwargs={"stop": stop})]
        for thread in threads:
            thread.start()
        while not server.started:
            time.sleep(0.05)
        own = f'name = "north"\nurl = "{server.url}"\ncerts = "certs/clients/north"\ndata = "north.npz"\n'
        Path("north.toml").write_text(
            own + COMMON.replace("seed = 1\n", "") + "[client]\nepochs = 1\n", encoding="utf-8"
        )
        command(Path("north.toml"), Path("site"), group=None, members=None, anew=False, patience=60.0, as_json=True)
        end = time.monotonic() + 60
        while made.status().model != "current" and time.monotonic() < end:
            time.sleep(0.2)
        stop.set()
        server.should_exit = True
        for thread in threads:
            thread.join(20)
    return walk


def main() -> None:
    """Count, and record if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", metavar="REVISION", default="")
    parser.add_argument("--list", action="store_true")
    asked, cells = parser.parse_args(), list[str]()
    for name, follow in (("learn", learn), ("join", join)):
        with tempfile.TemporaryDirectory(prefix="splitwiper-") as folder, chdir(folder):
            walk = follow()
        if lost := set(LANDMARKS) - walk.reached:
            sys.exit(f"{name} does not pass {', '.join(sorted(lost))}: name the landmarks anew.")
        cells += [str(len(walk.stops)), str(len({file for file, _ in walk.stops}))]
        sys.stderr.write(f"{name}: {cells[-2]} stops in {cells[-1]} files\n")
        for file, stop in walk.stops if asked.list else ():
            sys.stderr.write(f"  {file}: {stop}\n")
    if asked.record:
        record(f"| {asked.record} | {' | '.join(cells)} |\n")


def record(line: str) -> None:
    """Append a line to the table in results/tree.md."""
    text = OUT.read_text(encoding="utf-8")
    if TITLE not in text:
        text += (
            f"\n{TITLE}\n\nFunctions that a reader follows from the command to the model, and the files that they are "
            "in, by\n`python scripts/stops.py`, which says what counts.\n\n"
            "| revision | learn: stops | files | join: stops | files |\n|---|---:|---:|---:|---:|\n"
        )
    OUT.write_text(text + line, encoding="utf-8")


if __name__ == "__main__":
    main()
