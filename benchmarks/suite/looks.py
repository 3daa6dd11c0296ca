"""What a service asks of its database several times a second, with many clients: seconds of the processor per look."""

from __future__ import annotations

import hashlib
import json
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.harness import Check, Result
from splitwiper import ClientConfig, Config, Federation, Label, ServerConfig, split
from splitwiper.store import ServerStore, manifest_digest

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
            assert store.manifest() == manifest_digest(store.shards())  # noqa: S101
            store.database.close()
        values = {"a look": min(look), "the first look after a change": min(after)}
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
            ],
        )


def _store(folder: Path, clients: int) -> ServerStore:
    """Return a server's store whose database lists the shards of so many clients, without their files."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    halves = split(net, at="1", example=torch.zeros(1, 4))
    fed = Federation(folder / "run", halves, Config(server=ServerConfig(epochs=1), client=ClientConfig(epochs=1)))
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
