"""Many clients on one machine: the processor's time for a look at the state, and for accepting a shard."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.harness import Check, Result
from splitwiper import ClientConfig, Config, Federation, Halves, Label, ServerConfig, split
from splitwiper.server import Server
from splitwiper.store import ServerStore, manifest_digest
from splitwiper.wire import Spent, Statement

_LOOKS = 200


def run(*, quick: bool) -> Iterator[Result]:
    """Looks at the state with one thousand and with a hundred thousand clients, and the first one after a change."""
    for clients in (100, 1000) if quick else (1000, 100_000):
        with tempfile.TemporaryDirectory(prefix="splitwiper-") as folder:
            store = _store(Path(folder), clients)
            after, look = [], []
            for _ in range(3):
                with store.database.change() as db:
                    db.execute("UPDATE shards SET rows = rows + 1 WHERE client = 'client-000001'")
                after.append(_seconds(store.is_current))
                look.append(_seconds(store.is_current, _LOOKS))
            accept = [_accepted(Path(folder)) for _ in range(3)]
            assert store.manifest() == manifest_digest(store.shards())  # noqa: S101
            store.database.close()
        values = {"a look": min(look), "the first look after a change": min(after), "accept": min(accept)}
        yield Result(
            {"clients": clients, "quick": quick},
            values,
            [
                Check(
                    f"a look at the state with {clients:,} clients",
                    "≤ 1 ms",
                    f"{1000 * min(look):.3f} ms",
                    min(look) <= 0.001,
                ),
                Check(
                    f"the first look after a change, with {clients:,} clients",
                    "reported",
                    f"{1000 * min(after):.1f} ms",
                    True,
                ),
                Check(f"accepting a shard, with {clients:,} clients", "reported", f"{1000 * min(accept):.1f} ms", True),
            ],
        )


def _accepted(folder: Path) -> float:
    """Return the time for accepting a client's shard in place of its earlier one."""
    server = Server(ServerStore(folder / "run" / "server"), _halves().server)
    record = server.store.shard("first")
    assert record is not None  # noqa: S101
    copy = folder / secrets.token_hex(4)
    shutil.copy(server.store.blobs.path("shards", record.file), copy)
    salt = secrets.token_hex(32)
    statement = Statement(config="c" * 64, initial="i" * 64, key="k" * 64, fingerprint={}, salt=salt, spent=Spent())
    try:
        return _seconds(lambda: server.upload("first", copy, statement))
    finally:
        server.store.database.close()


def _halves() -> Halves:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return split(net, at="1", example=torch.zeros(1, 4))


def _store(folder: Path, clients: int) -> ServerStore:
    """Return a server's store whose database lists the shards of so many clients, without their files."""
    config = Config(server=ServerConfig(epochs=1), client=ClientConfig(epochs=1))
    fed = Federation(folder / "run", _halves(), config)
    fed.learn({"first": (np.eye(4, dtype=np.float32), np.array(["cat", "dog", "cat", "dog"]))})
    store = ServerStore(folder / "run" / "server")
    labels = json.dumps([Label("", "cat").text, Label("", "dog").text])
    names = [f"client-{number:06d}" for number in range(clients)]
    with store.database.change() as db:
        db.executemany("INSERT INTO clients VALUES (?, 1)", ((name,) for name in names))
        rows = (
            (name, f"shard-{name}", hashlib.sha256(name.encode()).hexdigest(), 100, 6_500_000, secrets.token_bytes(32))
            for name in names
        )
        db.executemany("INSERT INTO shards VALUES (?, ?, ?, ?, ?, ?, ?, '', 0, NULL)", ((*row, labels) for row in rows))
    return store


def _seconds(work: Callable[[], object], times: int = 1) -> float:
    """Return the processor's time for some work, done so many times, each."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times
