"""Several real processes on one run: one works, the others are told so; a dead one is no obstacle."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import warm
from reliability import tasks
from reliability.stage import bits, config, halves, ids_at, place_keys, query, reopen, rows, scratch, strays
from splitwiper import Federation
from splitwiper.client import Client, row_store
from splitwiper.client import client as client_module
from splitwiper.client.selection import Choice
from splitwiper.errors import BusyError
from splitwiper.federation import status
from splitwiper.server import Server
from splitwiper.store import files
from splitwiper.store.records import ShardRecord
from splitwiper.store.server_store import ServerStore
from splitwiper.wire import Request, Shard, Ticket

FIRST = {"north": rows("north", "abcabc"), "south": rows("south", "abcabc")}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    path = scratch()
    yield path
    shutil.rmtree(path)


def make(path: Path) -> Federation:
    place_keys(path)
    fed = Federation(path, halves(), config(slices=2))
    fed.learn(FIRST)
    return fed


def test_two_processes_at_once(folder: Path) -> None:
    """Learning for one client, for the same client, and forgetting, all at the same time, end in the right bits."""
    run = folder / "busy"
    make(run)
    parts, forgotten = [1, 2, 3, 4], ids_at(run, "north", FIRST["north"], [0, 4])
    workers = [
        tasks.start("learn_parts", run=str(run), client="south", parts=parts[:2]),
        tasks.start("learn_parts", run=str(run), client="south", parts=parts[2:]),
        tasks.start("forget_and_settle", run=str(run), client="north", samples=forgotten),
    ]
    results = [tasks.result(worker) for worker in workers]
    assert not any("error" in result for result in results), results
    quiet = make(folder / "quiet")
    for part in parts:
        quiet.learn({"south": rows("south", "abc", part=part)})
    quiet.unlearn("north", samples=forgotten)
    reopen(run).settle()
    assert bits(run) == bits(folder / "quiet")
    assert strays(run) == []
    assert reopen(run).verify().exact


@pytest.mark.parametrize("what", [{"classes": ["a"]}, {"everything": True}])
def test_a_request_while_another_process_erases_rows(
    folder: Path, monkeypatch: pytest.MonkeyPatch, what: dict[str, Any]
) -> None:
    """Slices are replaced at the very moment they are opened: between looking and reading, and before either."""
    for number, function in enumerate(("file_digest", "open_shard")):
        run = folder / f"erasing-{'-'.join(what)}-{number}"
        fed, replaced = make(run), list[str]()
        place = files if function == "file_digest" else row_store
        real = getattr(place, function)

        def replace(path: Path, real: Any = real, run: Path = run, replaced: list[str] = replaced, **more: Any) -> Any:
            if path.parent.name == "slices" and not replaced:
                replaced.append(path.name)
                reopen(run).unlearn("north", samples=ids_at(run, "north", FIRST["north"], [1, 2]))
                assert not path.exists()
            return real(path, **more)

        with monkeypatch.context() as patch:
            patch.setattr(place, function, replace)
            fed.submit("north", **what)
        fed.settle()
        assert replaced and "a" not in fed.rows("north").values() and fed.verify().exact


@pytest.mark.parametrize("what", [{"classes": ["a"]}, {"everything": True}])
def test_rows_that_another_process_adds_while_they_are_chosen_are_forgotten_with_the_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch, what: dict[str, Any]
) -> None:
    run = folder / f"adding-{'-'.join(what)}"
    fed, real, late = make(run), Client.forget, rows("north", "ab", part=7)
    added: list[str] = []

    def forget(client: Client, choice: Choice) -> Request:
        if not added:
            added.append("once")
            assert reopen(run).learn({"north": late}).added["north"].new == 2
        return real(client, choice)

    monkeypatch.setattr(Client, "forget", forget)
    fed.unlearn("north", **what)
    assert added and "a" not in fed.rows("north").values()
    assert fed.learn({"north": late}).added["north"].refused == (1 if "classes" in what else 2)
    assert fed.verify().exact


def test_a_request_that_another_process_answered_meanwhile_stays_answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = folder / "answered"
    fed, real, settled = make(run), Server.submit, list[str]()

    def submit(server: Server, request: Request) -> Ticket:
        ticket = real(server, request)
        if not settled:
            settled.append(ticket.id)
            reopen(run).settle()
        return ticket

    monkeypatch.setattr(Server, "submit", submit)
    ticket = fed.submit("north", classes=["a"])
    assert settled == [ticket.id] and ticket.state == "settled"
    assert status(run).todo == () and fed.verify(ticket.id).exact


def test_a_prediction_while_another_process_forgets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = folder / "predicting"
    fed, real, forgotten = make(run), client_module.load_state, list[Path]()

    def load(path: Path, *rest: Any, **more: Any) -> Any:
        if path.parent.name == "half" and not forgotten:
            forgotten.append(path)
            reopen(run).unlearn("north", classes=["a"])
            assert not path.exists()
        return real(path, *rest, **more)

    monkeypatch.setattr(client_module, "load_state", load)
    answers = fed.predict("north", FIRST["north"][0])
    assert forgotten and answers == reopen(run).predict("north", FIRST["north"][0])


@pytest.mark.parametrize("step", ["mkdir", "rename", "commit"])
def test_two_processes_make_one_run(folder: Path, step: str) -> None:
    """Whatever moment the second one comes at, it opens the first one's run, though its model has other weights."""
    run, workers = folder / f"made-{step}", list[warm.Process]()

    def second(kind: str, _path: Path) -> None:
        if kind == f"{step}:after" and not workers:
            workers.append(tasks.start("make_other", run=str(run)))
            with suppress(subprocess.TimeoutExpired):
                workers[0].wait(0.3)  # it has to wait for us

    with files.watch(second):
        fed = Federation(run, halves(), config(slices=2))
    answer = tasks.result(workers[0])
    assert "error" not in answer, answer
    fed.learn(FIRST)
    assert reopen(run).verify().exact


def test_an_equal_shard_that_comes_again_while_the_server_opens_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest stays the same, and the file goes: training begins again, and nothing is called damaged."""
    run = folder / "again"
    fed = make(run)
    fed.submit("north", samples=ids_at(run, "north", FIRST["north"], [0]))
    opened, real = [], ServerStore.open

    def open_late(store: ServerStore, record: ShardRecord) -> Shard:
        if record.client == "south" and not opened:
            opened.append(record)
            with suppress(BusyError):  # the shard is sent; training is what the other does
                reopen(run).reupload("south")
        return real(store, record)

    monkeypatch.setattr(ServerStore, "open", open_late)
    assert len(fed.settle()) == 1
    assert opened and reopen(run).verify().exact
    assert strays(run) == []


@pytest.mark.parametrize("learns", [True, False])
def test_a_run_that_changes_while_it_is_verified_is_not_accused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, learns: bool
) -> None:
    run = folder / f"changing-{learns}"
    fed, real = make(run), ServerStore.shards
    changed: list[str] = []

    def shards_late(store: ServerStore) -> tuple[ShardRecord, ...]:
        if not changed and store is fed._server.store:
            changed.append("once")
            other = reopen(run)
            other.learn({"west": rows("west", "abc")}) if learns else other.submit("north", everything=True)
        return real(store)

    monkeypatch.setattr(ServerStore, "shards", shards_late)
    with pytest.raises(BusyError, match=r"changed .* while it was being read: try again"):
        fed.verify()
    assert changed
    fed.settle()
    assert fed.verify().exact


def held(folder: Path, name: str) -> tuple[Path, Path, warm.Process]:
    """A run whose server a worker holds."""
    run, sign = folder / name, folder / f"{name}.sign"
    make(run).submit("north", samples=ids_at(run, "north", FIRST["north"], [0]))
    worker = tasks.start("hold", run=str(run), sign=str(sign))
    while not sign.exists():
        time.sleep(0.002)
    return run, sign, worker


def test_a_holder_is_named_and_a_dead_one_is_replaced_at_once(folder: Path) -> None:
    run, _, worker = held(folder, "killed")
    with pytest.raises(BusyError, match=f"process {worker.pid} .*holding.*[Ww]ait for it to finish"):
        reopen(run).settle()
    assert str(worker.pid) in (status(run).work or "")
    assert status(run).todo
    worker.kill()
    worker.communicate(60)
    assert "interrupted" in (status(run).work or "")
    start = time.monotonic()
    assert len(reopen(run).settle()) == 1
    assert time.monotonic() - start < 25  # the lease itself would last for 30 s
    assert reopen(run).verify().exact


def test_a_process_that_slept_through_its_lease_is_fenced(folder: Path) -> None:
    run, sign, worker = held(folder, "asleep")
    worker.send_signal(signal.SIGSTOP)
    import sqlite3

    with sqlite3.connect(run / "server" / "server.db") as db:  # time passes: the lease runs out
        db.execute("UPDATE lease SET since = -1e6, expires = 1")
    db.close()
    assert len(reopen(run).settle()) == 1
    after = bits(run)
    sign.unlink()
    worker.send_signal(signal.SIGCONT)
    answer = tasks.result(worker)
    assert answer["error"] == "FencedError"
    assert "took over" in answer["message"]
    assert query(run / "server" / "server.db", "SELECT * FROM meta WHERE key = 'mark'") == []
    assert bits(run) == after
    assert reopen(run).verify().exact
