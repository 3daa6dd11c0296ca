"""Server, worker and clients, killed at random instants over upload, training and unlearning; nothing is lost.

What comes out is compared, bit for bit, with one process that learns what is left in peace. Counts are written to
``results/soak/service.jsonl``.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from federation.runs import Table, table
from service.processes import MODEL, Running
from splitwiper import Config, Federation, ServerConfig, __version__
from splitwiper.config import ClientConfig, ModelConfig
from splitwiper.errors import RequestError
from splitwiper.seeding import state_digest
from splitwiper.store import ServerStore

RESULTS = Path(__file__).parents[2] / "results" / "soak" / "service.jsonl"
LABELS = {"north": ("bird", "cat", "dog"), "south": ("cat", "dog"), "west": ("cat", "eel")}
PARTS = 400


def part(name: str, number: int) -> Table:
    """Rows that a client learns in one go."""
    return table(1000 * sorted(LABELS).index(name) + number, LABELS[name], 12)


def carry_out(server: Running, operation: dict[str, Any]) -> None:
    """One operation of a client, to its end; it may be repeated."""
    torch.set_num_threads(1)
    name = operation["client"]
    with closing(server.site(name)) as site:
        if operation["do"] == "learn":
            site.learn(part(name, operation["part"]))
            return
        with suppress(RequestError):  # the one before was killed after it had suppressed them
            site.forget(classes=[operation["class"]])
        site.settle(patience=60)


def plan(draw: random.Random) -> list[dict[str, Any]]:
    """What clients do: parts are learned, and now and then a class of all that is there is forgotten."""
    out: list[dict[str, Any]] = []
    for number in range(PARTS):
        name = draw.choice(sorted(LABELS))
        if number > 5 and draw.random() < 0.35:
            out.append({"do": "forget", "client": name, "class": draw.choice(LABELS[name])})
        else:
            out.append({"do": "learn", "client": name, "part": number})
    return out


def left(done: list[dict[str, Any]]) -> tuple[dict[str, Table], list[bytes]]:
    """The rows that clients hold after all that was done, and the raw bytes of those that were forgotten."""
    held: dict[str, list[tuple[np.ndarray, str]]] = {name: [] for name in LABELS}
    gone: list[bytes] = []
    for operation in done:
        mine = held[operation["client"]]
        if operation["do"] == "learn":
            x, y = part(operation["client"], operation["part"])
            mine += list(zip(x, y.tolist(), strict=True))
        else:
            gone += [x.tobytes() for x, label in mine if label == operation["class"]]
            mine[:] = [(x, label) for x, label in mine if label != operation["class"]]
    return {n: (np.stack([x for x, _ in m]), np.array([y for _, y in m])) for n, m in held.items() if m}, gone


def run_through(folder: Path, kills: int, seed: int, *, cold: bool) -> dict[str, Any]:
    draw, fork = random.Random(seed), multiprocessing.get_context("fork")
    server, killed, done = Running(folder, epochs=3, cold=cold), Counter[str](), list[dict[str, Any]]()
    began = time.monotonic()
    for operation in plan(draw):
        if sum(killed.values()) >= kills:
            break
        while True:
            child = fork.Process(target=carry_out, args=(server, operation))
            child.start()
            victim = draw.choice(["client", "server", "worker", "nobody"])
            child.join(draw.uniform(0.0, 1.2))
            if victim == "client" and child.is_alive():
                os.kill(child.pid, signal.SIGKILL)
                killed["client"] += 1
            elif victim == "server":
                server.kill()
                killed["server"] += 1
                server.start()
            elif victim == "worker" and server.kill_worker():
                killed["worker"] += 1
            child.join(120)
            assert child.exitcode is not None, "a client hangs"
            if child.exitcode == 0:
                break
        done.append(operation)
    store, end = ServerStore(folder / "store"), time.monotonic() + 120
    while not store.is_current() or store.model() is None:
        assert time.monotonic() < end, "the worker did not finish"
        time.sleep(0.1)
    found = judged(folder, done, store)
    server.stop()
    return {**found, "kills": dict(killed), "operations": len(done), "seconds": round(time.monotonic() - began, 1)}


def judged(folder: Path, done: list[dict[str, Any]], store: ServerStore) -> dict[str, Any]:
    """Count what was promised, and what became of it."""
    rows, gone = left(done)
    config = Config(
        seed=5,
        server=ServerConfig(epochs=3, batch=16, threads=1),
        client=ClientConfig(epochs=2, batch=8, head_width=4, threads=1, keys="seeded"),
        model=ModelConfig(**MODEL),
    )
    never = Federation(folder / "never", config=config)
    never.learn(rows)
    other = ServerStore(folder / "never" / "server")
    files = [path for path in [*(folder / "sites").rglob("*"), *(folder / "store").rglob("*")] if path.is_file()]
    data = b"\0".join(path.read_bytes() for path in files)
    return {
        "shards_lost": len({s.client for s in other.shards()} ^ {s.client for s in store.shards()}),
        "tickets_open": sum(ticket.state != "settled" for ticket in store.tickets()),
        "rows_forgotten": len(gone),
        "forgotten_back": sum(raw in data for raw in gone),
        "final_bits_equal": state_digest(store.weights(store.model())) == state_digest(other.weights(other.model())),
    }


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_hundred_kills(tmp_path: Path) -> None:
    found = run_through(tmp_path, kills=110, seed=20_261_115, cold=True)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    line = {**found, "version": __version__, "date": datetime.now(UTC).isoformat(timespec="seconds")}
    RESULTS.write_text(json.dumps(line) + "\n", encoding="utf-8")
    assert sum(found["kills"].values()) >= 100
    assert (found["shards_lost"], found["tickets_open"], found["forgotten_back"]) == (0, 0, 0)
    assert found["final_bits_equal"]


def test_a_few_kills(tmp_path: Path) -> None:
    found = run_through(tmp_path, kills=3, seed=7, cold=False)
    assert (found["shards_lost"], found["tickets_open"], found["forgotten_back"]) == (0, 0, 0)
    assert found["final_bits_equal"], found
