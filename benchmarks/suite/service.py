"""The service over mutual TLS: uploads against a bare uvicorn, memory, many simultaneous clients, predictions."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch

from benchmarks.flooding import CONNECTIONS, flood
from benchmarks.harness import ROOT, Check, Result
from splitwiper import Label
from splitwiper.errors import BusyError, NotFoundError
from splitwiper.service.calls.guard import LedgerGuard
from splitwiper.service.identity import Authority, client_context, server_context
from splitwiper.service.site.link import HttpsLink
from splitwiper.store import ServerStore
from splitwiper.store.files import file_digest
from splitwiper.wire import Column, Spent, Statement, write_shard

WIDTH = 1024
"""Floats of a row."""
SERVER = f"""
seed = 1
[model]
factory = "splitwiper.models:mlp"
args = {{inputs = 16, outputs = 4, hidden = 32, cut = {WIDTH}}}
inputs = {{x = "float32[16]"}}
at = "stem"
head = "head"
[server]
epochs = 1
batch = 4096
[service]
signed = false
port = 0
certs = "certs/server"
probabilities = true
withdraw = false
rate = 100000.0
burst = 1000000
"""
_ROUNDS = 5
"""Rounds of predictions with and without a flood: with fewer calls, the slowest hundredth differs from run to run."""
IDLE = 86400.0
"""Seconds that the worker waits before it trains: in effect without end, to measure only the upload."""


def missing(*, quick: bool = False) -> str:
    """It needs the service extra."""
    return "" if importlib.util.find_spec("uvicorn") else "the package's service extra is not installed"


def run(*, quick: bool, only: str = "") -> Iterator[Result]:
    """Uploads against a server whose worker is idle, as the bare one has none; all else against one that trains."""
    sizes = (2 << 20, 4 << 20) if quick else (256 << 20, 2 << 30)
    clients, asked = (10, 50) if quick else (200, 400)
    with tempfile.TemporaryDirectory(prefix="splitwiper-") as folder:
        root = Path(folder)
        names = [f"client-{number}" for number in range(clients)]
        authority = Authority.create(root / "certs", "bench", hosts=["127.0.0.1"])
        for name in names:
            authority.issue_client(name)
        if only in "speed":
            with serving(root, "idle", coalesce=IDLE) as (url, _):
                yield _speed(root, url, sizes[0], rounds=1 if quick else 9)
        with serving(root, "store") as (url, process):
            if only in "memory":
                yield _memory(root, url, process, sizes[1])
            many = _many(root, url, names)  # the parts that follow predict with what these clients sent
            if only in "many":
                yield many
            if only in "predictions":
                yield _predictions(root, url, sizes[0], asked, calm=0.2 if quick else 3.0)
            if only in "fairness":
                yield _fairness(root, url, asked)
            if only in "heads":
                yield _heads(root, url, asked)


@contextmanager
def serving(root: Path, store: str, *, coalesce: float = 1.0, text: str = SERVER) -> Iterator[tuple[str, int]]:
    """Run a server over a new store; its address and its process."""
    (root / "server.toml").write_text(f"{text}coalesce = {coalesce}\n", encoding="utf-8")
    command = [str(Path(sys.executable).parent / "splitwiper"), "serve", "server.toml", "--store", store]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=quiet, text=True) as process:  # noqa: S603
        try:
            line = process.stdout.readline() if process.stdout else ""
            yield line.split()[1], process.pid
        finally:
            process.terminate()


def child(folder: str, target: str) -> dict[str, Any]:
    """A bare uvicorn that streams a body to disk, with the same TLS; ends when its input is closed."""
    import uvicorn

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        with Path(target).open("wb", buffering=0) as file:
            more = True
            while more:
                message = await receive()
                file.write(message.get("body", b""))
                more = message.get("more_body", False)
            os.fsync(file.fileno())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        http="httptools",
        ssl_context_factory=lambda *_: server_context(folder),
        log_config=None,
        access_log=False,
    )
    server = uvicorn.Server(config)

    def tell() -> None:
        while not server.started:
            time.sleep(0.01)
        sys.stderr.write(f"{server.servers[0].sockets[0].getsockname()[1]}\n")
        sys.stderr.flush()
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=tell, daemon=True).start()
    server.run()
    return {}


@contextmanager
def _bare(root: Path) -> Iterator[str]:
    import json

    given = json.dumps({"folder": str(root / "certs" / "server"), "target": str(root / "bare")})
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "benchmarks", "--child", "service", given],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        port = process.stderr.readline().strip() if process.stderr else ""
        yield f"https://127.0.0.1:{port}"
    finally:
        if process.stdin:
            process.stdin.close()
        process.wait(30)


def _shard(path: Path, size: int, seed: int = 0) -> Path:
    """A real shard of about so many bytes."""
    rows, draw = size // (4 * WIDTH), np.random.default_rng(seed)
    with path.open("wb") as file:
        block = 4096

        def blocks() -> Iterator[tuple[dict[str, Any], Any]]:
            for start in range(0, rows, block):
                count = min(block, rows - start)
                values = draw.random((count, WIDTH), dtype=np.float32)
                yield {"activation": values}, (np.arange(start, start + count) % 4).astype(np.int32)

        labels = [Label("", name) for name in range(4)]
        columns = [Column("activation", "F32", (WIDTH,))]
        target: Any = file
        write_shard(target, columns=columns, rows=rows, labels=labels, blocks=blocks())
    return path


def _said() -> Statement:
    return Statement("c", "i", "k", {}, (), Spent())


def _link(root: Path, url: str, name: str = "client-0") -> HttpsLink:
    return HttpsLink(url, client_context(root / "certs" / "clients" / name), patience=600)


def _speed(root: Path, url: str, size: int, rounds: int) -> Result:
    """Send one file to the service and to a bare uvicorn, in alternating order."""
    ours, bare, whole = [], [], []
    with _bare(root) as other, closing(_link(root, url)) as link:
        context = client_context(root / "certs" / "clients" / "client-0")
        with httpx.Client(base_url=other, verify=context, trust_env=False, timeout=600) as http:

            def to_bare(path: Path) -> None:
                (root / "bare").unlink(missing_ok=True)  # cutting an old file off would be counted
                headers = {"Content-Length": str(path.stat().st_size)}
                bare.append(_timed(lambda: http.patch("/", content=_pieces(path), headers=headers), path))

            def to_ours(path: Path) -> None:
                written = file_digest(path)  # as a client does when it writes a shard
                whole.append(_timed(lambda: link.upload("client-0", path, _said(), digest=written), path))
                ours.append(link.timings["sent"])

            for number in range(rounds + 1):
                path = _shard(root / "shard", size, number)
                for send in (to_bare, to_ours) if number % 2 else (to_ours, to_bare):
                    send(path)
    bare, ours, whole = (times[1:] for times in (bare, ours, whole))  # the first is to get warm
    ratio = float(np.median(np.array(bare) / np.array(ours)))
    complete = float(np.median(np.array(bare) / np.array(whole)))
    checks = [
        Check("upload over TLS against a bare uvicorn that streams to disk", "≥ 0.8 ×", f"{ratio:.2f} ×", ratio >= 0.8),
        Check(
            "the same from its beginning to its acceptance, with every value checked",
            "reported",
            f"{complete:.2f} ×",
            True,
        ),
    ]
    return Result({"bytes": size}, {"ours": ours, "whole": whole, "bare": bare}, checks)


def _timed(work: Callable[[], object], path: Path) -> float:
    """Seconds that something takes, once the file that it is about is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            yield piece


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon"):  # memory mapped from files can be released at any time
            return 1024 * int(line.split()[1])
    return 0


def _memory(root: Path, url: str, pid: int, size: int) -> Result:
    """The most that the service takes above idle while it takes a large shard in."""
    path, most, done = _shard(root / "large", size), 0, threading.Event()
    idle = _resident(pid)

    def look() -> None:
        nonlocal most
        while not done.wait(0.02):
            most = max(most, _resident(pid))

    watcher = threading.Thread(target=look)
    watcher.start()
    with closing(_link(root, url)) as link:
        link.upload("client-0", path, _said())
    done.set()
    watcher.join()
    path.unlink()
    grown = max(0, most - idle)
    told = f"{grown / 1e6:.0f} MB for {size / 1e9:.2g} GB"
    return Result(
        {"bytes": size}, {"idle": idle, "most": most}, [Check("memory above idle", "≤ 150 MB", told, grown <= 150e6)]
    )


def _many(root: Path, url: str, names: list[str]) -> Result:
    """Let all clients simultaneously look at the federation, fetch first weights and send a shard."""
    file = io.BytesIO()
    block = ({"activation": np.ones((8, WIDTH), np.float32)}, np.zeros(8, np.int32))
    columns = [Column("activation", "F32", (WIDTH,))]
    write_shard(file, columns=columns, rows=8, labels=[Label("", 0)], blocks=[block])
    path = root / "small"
    path.write_bytes(file.getvalue())
    errors: list[str] = []

    def join(name: str) -> None:
        try:
            with closing(_link(root, url, name)) as link:
                link.federation()
                link.initial()
                link.upload(name, path, _said())
        except Exception as problem:
            errors.append(f"{name}: {problem!r}")

    start = time.perf_counter()
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(join, names))
    took = time.perf_counter() - start
    told = f"{len(errors)} errors"
    check = Check(f"{len(names)} clients joining at once", "0 errors", told, not errors)
    return Result({"clients": len(names)}, {"seconds": took, "errors": errors[:5]}, [check])


def _predictions(root: Path, url: str, size: int, count: int, calm: float) -> Result:
    """The slowest hundredth of small predictions, while nothing else happens and during an upload."""
    with closing(_link(root, url, "client-1")) as link:
        rows = {"activation": torch.ones(4, WIDTH)}
        _await_model(link, rows)
        time.sleep(calm)
        idle = _asked(link, rows, count)
        path, stop = _shard(root / "again", size, 9), threading.Event()

        def upload() -> None:
            number = 10
            with closing(_link(root, url)) as other:
                while not stop.is_set():
                    other.upload("client-0", path, _said())
                    with path.open("r+b") as file:  # another shard each time
                        file.seek(-4, 2)
                        file.write(np.float32(number).tobytes())
                    number += 1

        sender = threading.Thread(target=upload)
        sender.start()
        busy = _asked(link, rows, count)
        stop.set()
        sender.join()
    slow, calm = (float(np.percentile(times, 99)) for times in (busy, idle))
    ratio = slow / calm
    check = Check(
        "99th percentile of a small prediction during uploads, against idle", "≤ 3 ×", f"{ratio:.1f} ×", ratio <= 3
    )
    return Result({"count": count}, {"idle": idle, "busy": busy}, [check])


def _fairness(root: Path, url: str, count: int) -> Result:
    """The slowest hundredth of a client's small predictions, while another client floods the server with large ones."""
    rows = {"activation": torch.ones(4, WIDTH)}
    idle, flooded, answered = list[float](), list[float](), Counter[str]()
    with closing(_link(root, url, "client-1")) as link:
        _await_model(link, rows)
        for _ in range(_ROUNDS):  # in turn, because the machine may be slower at one time than at another
            idle += _asked(link, rows, count)
            with flood(url, root / "certs" / "clients" / "client-2", 4096, WIDTH) as answers:
                flooded += _asked(link, rows, count)
            answered += answers
    ratio = float(np.percentile(flooded, 99) / np.percentile(idle, 99))
    what = f"99th percentile of a small prediction while one client floods over {CONNECTIONS} connections, against idle"
    check = Check(what, "≤ 3 ×", f"{ratio:.1f} ×", ratio <= 3)
    values = {"idle": idle, "flooded": flooded, "answers_to_the_flood": dict(answered)}
    return Result({"part": "fairness", "count": _ROUNDS * count, "rows": 4096}, values, [check])


def _heads(root: Path, url: str, count: int) -> Result:
    """Compare small predictions whose ledger head is checked and pinned with unchecked ones."""
    server_store = ServerStore(root / "store")
    guard = LedgerGuard(root / "site", server_store.database.meta("run") or "", root)
    server_store.database.close()
    context = client_context(root / "certs" / "clients" / "client-1")
    rows = {"activation": torch.ones(4, WIDTH)}
    with closing(_link(root, url, "client-1")) as plain, closing(HttpsLink(url, context, guard=guard)) as guarded:
        _await_model(plain, rows)
        times: dict[str, list[float]] = {"plain": [], "checked": []}
        for number in range(count):
            both = [("plain", plain), ("checked", guarded)]
            for name, link in both if number % 2 else both[::-1]:
                times[name] += _asked(link, rows, 1)
    ratio = float(np.median(times["checked"]) / np.median(times["plain"]))
    check = Check("a small prediction with the ledger's head checked", "≤ 1.2 ×", f"{ratio:.2f} ×", ratio <= 1.2)
    return Result({"part": "heads", "count": count}, times, [check])


def _await_model(link: HttpsLink, rows: dict[str, torch.Tensor]) -> None:
    """Wait until the worker has trained on what came in."""
    end = time.monotonic() + 120
    while True:
        try:
            link.predict("client-1", rows)
            return
        except (NotFoundError, BusyError):
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def _asked(link: HttpsLink, rows: dict[str, torch.Tensor], count: int) -> list[float]:
    out = []
    for _ in range(count):
        start = time.perf_counter()
        link.predict("client-1", rows)
        out.append(time.perf_counter() - start)
    return out
