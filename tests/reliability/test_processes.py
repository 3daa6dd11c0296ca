"""Several real processes on one run: one works, the others are told so; a dead one is no obstacle."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from reliability.forker import Forker, Worker
from reliability.stage import bits, config, halves, ids_at, place_keys, query, reopen, rows, scratch, strays
from splitwiper import Federation
from splitwiper.errors import BusyError
from splitwiper.federation import status
from splitwiper.store.records import ShardRecord
from splitwiper.store.server_tree import ServerTree
from splitwiper.wire import Shard

FIRST = {"north": rows("north", "abcabc"), "south": rows("south", "abcabc")}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    path = scratch()
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def forker(folder: Path) -> Iterator[Forker]:
    process = Forker(folder)
    yield process
    process.close()


def make(path: Path) -> Federation:
    place_keys(path)
    fed = Federation(path, halves(), config(slices=2))
    fed.learn(FIRST)
    return fed


def test_two_processes_at_once(folder: Path, forker: Forker) -> None:
    """Learning for one client, for the same client, and forgetting, all at the same time, end in the right bits."""
    run = folder / "busy"
    make(run)
    parts, forgotten = [1, 2, 3, 4], ids_at(run, "north", FIRST["north"], [0, 4])
    workers = [
        forker.start("learn_parts", run=str(run), client="south", parts=parts[:2]),
        forker.start("learn_parts", run=str(run), client="south", parts=parts[2:]),
        forker.start("forget_and_settle", run=str(run), client="north", samples=forgotten),
    ]
    results = [worker.result() for worker in workers]
    assert not any("error" in result for result in results), results
    assert sum(result["returned"]["busy"] for result in results) > 0
    quiet = make(folder / "quiet")
    for part in parts:
        quiet.learn({"south": rows("south", "abc", part=part)})
    quiet.unlearn("north", samples=forgotten)
    reopen(run).settle()
    assert bits(run) == bits(folder / "quiet")
    assert strays(run) == []
    assert reopen(run).verify().exact


def test_an_equal_shard_that_comes_again_while_the_server_opens_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest stays the same, and the file goes: training begins again, and nothing is called damaged."""
    run = folder / "again"
    fed = make(run)
    fed.submit("north", samples=ids_at(run, "north", FIRST["north"], [0]))
    opened, real = [], ServerTree.open

    def open_late(tree: ServerTree, record: ShardRecord) -> Shard:
        if record.client == "south" and not opened:
            opened.append(record)
            with suppress(BusyError):  # the shard is sent; training is what the other does
                reopen(run).reupload("south")
        return real(tree, record)

    monkeypatch.setattr(ServerTree, "open", open_late)
    assert len(fed.settle()) == 1
    assert opened and reopen(run).verify().exact
    assert strays(run) == []


@pytest.mark.parametrize("learns", [True, False])
def test_a_run_that_changes_while_it_is_verified_is_not_accused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, learns: bool
) -> None:
    run = folder / f"changing-{learns}"
    fed, real = make(run), ServerTree.shards
    changed: list[str] = []

    def shards_late(tree: ServerTree) -> tuple[ShardRecord, ...]:
        if not changed and tree is fed._server.tree:
            changed.append("once")
            other = reopen(run)
            other.learn({"west": rows("west", "abc")}) if learns else other.submit("north", everything=True)
        return real(tree)

    monkeypatch.setattr(ServerTree, "shards", shards_late)
    with pytest.raises(BusyError, match=r"changed .* while it was being read: try again"):
        fed.verify()
    assert changed
    fed.settle()
    assert fed.verify().exact


def held(folder: Path, forker: Forker, name: str) -> tuple[Path, Path, Worker]:
    """A run whose server a worker holds."""
    run, sign = folder / name, folder / f"{name}.sign"
    make(run).submit("north", samples=ids_at(run, "north", FIRST["north"], [0]))
    worker = forker.start("hold", run=str(run), sign=str(sign))
    while not sign.exists():
        time.sleep(0.002)
    return run, sign, worker


def test_a_holder_is_named_and_a_dead_one_is_replaced_at_once(folder: Path, forker: Forker) -> None:
    run, _, worker = held(folder, forker, "killed")
    with pytest.raises(BusyError, match=f"process {worker.pid} .*holding.*[Ww]ait for it to finish"):
        reopen(run).settle()
    assert str(worker.pid) in (status(run).work or "")
    assert status(run).todo
    worker.signal(signal.SIGKILL)
    worker.wait()
    assert "interrupted" in (status(run).work or "")
    start = time.monotonic()
    assert len(reopen(run).settle()) == 1
    assert time.monotonic() - start < 25  # the lease itself would last for 30 s
    assert reopen(run).verify().exact


def test_a_process_that_slept_through_its_lease_is_fenced(folder: Path, forker: Forker) -> None:
    run, sign, worker = held(folder, forker, "asleep")
    worker.signal(signal.SIGSTOP)
    import sqlite3

    with sqlite3.connect(run / "server" / "server.db") as db:  # time passes: the lease runs out
        db.execute("UPDATE lease SET since = -1e6, expires = 1")
    db.close()
    assert len(reopen(run).settle()) == 1
    after = bits(run)
    sign.unlink()
    worker.signal(signal.SIGCONT)
    answer = worker.result()
    assert answer["error"] == "FencedError"
    assert "took over" in answer["message"]
    assert query(run / "server" / "server.db", "SELECT * FROM meta WHERE key = 'mark'") == []
    assert bits(run) == after
    assert reopen(run).verify().exact
