"""A process loses its lease at the worst moments: it stops, and neither its rows nor its files do any harm."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from reliability.stage import bits, config, halves, ids_at, place_keys, query, reopen, rows, strays
from splitwiper import Federation
from splitwiper.errors import BusyError, FencedError
from splitwiper.federation import status
from splitwiper.store import database as database_module
from splitwiper.store import files, process
from splitwiper.store.database import Database
from splitwiper.store.process import Process

DATA = {"north": rows("north", "aabbcc"), "south": rows("south", "abcabc")}


def run_out(database: Path) -> None:
    """Let the lease run out, as if its holder had slept through it."""
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("UPDATE lease SET since = -1e6, expires = 1")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    place_keys(tmp_path / "run")
    Federation(tmp_path / "run", halves(), config(slices=2)).learn(DATA)
    return tmp_path / "run"


@pytest.fixture
def quiet(tmp_path: Path) -> Path:
    place_keys(tmp_path / "quiet")
    fed = Federation(tmp_path / "quiet", halves(), config(slices=2))
    fed.learn(DATA)
    fed.learn({"north": rows("north", "abc", part=1)})
    fed.unlearn("north", classes=["a"])
    return tmp_path / "quiet"


@pytest.mark.parametrize("moment", ["north: pre-training", "north: embedding", "server: training"])
def test_the_loser_of_a_lease_stops_and_harms_nothing(run: Path, quiet: Path, moment: str) -> None:
    """While one process works, another takes over, forgets a class and settles: it must stay forgotten."""
    store = "server/server.db" if moment.startswith("server") else "clients/north/client.db"
    seen: list[dict[str, object]] = []

    def asleep(what: str, *_: object, **__: object) -> None:
        if what == moment and not seen:
            run_out(run / store)
            other = reopen(run)
            other.learn({"north": rows("north", "abc", part=1)})
            other.unlearn("north", classes=["a"])
            seen.append(bits(run))

    sleeper = Federation(run, halves(), progress=asleep)
    with pytest.raises(FencedError, match="took over"):
        sleeper.learn({"north": rows("north", "abc", part=1)})
    assert seen == [bits(quiet)]
    assert bits(run) == seen[0]
    fed = reopen(run)
    fed.settle()
    assert bits(run) == seen[0]
    assert strays(run) == []
    assert fed.verify().exact


def test_nobody_takes_over_in_the_middle_of_an_upload(run: Path, quiet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard under way when its rows are forgotten would bring them back: until it has arrived, others wait."""
    connect, now = Database._connect, time.monotonic()
    outcome: list[str] = []

    def impatient(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
        db = connect(path, readonly=readonly)
        db.execute("PRAGMA busy_timeout = 50")
        return db

    def asleep(kind: str, path: Path) -> None:
        if kind == "link:before" and path.parent.name == "incoming" and not outcome:
            outcome.append("asleep")
            monkeypatch.setattr(database_module.time, "monotonic", lambda: now + 3600)
            other = reopen(run)
            try:
                other.learn({"north": rows("north", "abc", part=1)})
                other.unlearn("north", classes=["a"])
            except BusyError as problem:
                outcome.append(str(problem))

    monkeypatch.setattr(Database, "_connect", staticmethod(impatient))
    with files.watch(asleep):
        Federation(run, halves()).learn({"north": rows("north", "abc", part=1)})
    assert "client.db is locked by another process" in outcome[1]
    reopen(run).unlearn("north", classes=["a"])
    assert bits(run) == bits(quiet)
    assert strays(run) == []


def test_a_fenced_sweep_spares_the_files_of_the_successor(run: Path) -> None:
    """A file is written before the database points to it; the loser must not take it for rubbish in between."""
    client = reopen(run)._client("north")
    with client.store.database.lease("working"):
        run_out(run / "clients/north/client.db")
        other = reopen(run)._client("north")
        with other.store.database.lease("working too"):
            fresh = run / "clients/north/slices/slice-0123456789abcdef.safetensors"
            fresh.touch()
            with pytest.raises(FencedError):
                client.store.sweep()
            assert fresh.exists()
            other.store.sweep()
            assert not fresh.exists()


# --- clocks -------------------------------------------------------------------------------------------------


def lease(run: Path, **values: object) -> None:
    """Write a lease by hand."""
    with closing(sqlite3.connect(run / "server/server.db", isolation_level=None)) as db:
        for key, value in values.items():
            db.execute(f"UPDATE lease SET {key} = ?", (value,))


ELSEWHERE = Process(1, "1", "another-machine boot pid:[1]").text


def test_a_lease_from_another_machine_is_respected_until_it_runs_out(run: Path) -> None:
    reopen(run).submit("north", samples=ids_at(run, "north", DATA["north"], [0]))
    lease(run, holder=ELSEWHERE, purpose="work", expires=time.time() + 20, token=50)
    with pytest.raises(BusyError, match="another-machine"):
        reopen(run).settle()
    assert "another-machine" in (status(run).work or "")
    lease(run, expires=time.time() - 1)
    assert len(reopen(run).settle()) == 1


def test_a_clock_that_jumped_back_locks_nobody_out(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that ends in a year was written before the clock was set back, or by a clock that was wrong."""
    reopen(run).submit("north", samples=ids_at(run, "north", DATA["north"], [0]))
    lease(run, holder=ELSEWHERE, purpose="work", expires=time.time() + 20, token=50)
    now = time.time()
    monkeypatch.setattr(database_module.time, "time", lambda: now - 365 * 86_400)
    assert len(reopen(run).settle()) == 1


def test_a_clock_that_jumped_back_does_not_unseat_a_living_neighbour(run: Path) -> None:
    reopen(run).submit("north", samples=ids_at(run, "north", DATA["north"], [0]))
    neighbour = Process(os.getppid(), process._started(os.getppid()), Process.current().place)
    lease(run, holder=neighbour.text, purpose="work", expires=time.time() + 365 * 86_400, token=50)
    with pytest.raises(BusyError):
        reopen(run).settle()


@pytest.mark.parametrize("year", [365 * 86_400, -365 * 86_400])
def test_a_clock_that_is_set_takes_no_lease_from_who_is_at_work(
    run: Path, monkeypatch: pytest.MonkeyPatch, year: int
) -> None:
    now = time.time()
    seen: list[str] = []

    def jump(what: str, *_: object, **__: object) -> None:
        if what == "server: training" and not seen:
            monkeypatch.setattr(database_module.time, "time", lambda: now + year)
            with pytest.raises(BusyError, match="in use by") as told:
                reopen(run).settle()
            seen.append(str(told.value))

    fed = Federation(run, halves(), progress=jump)
    assert fed.unlearn("north", classes=["b"]).exact
    assert seen and fed.verify().exact


def test_a_process_that_slept_costs_its_lease_but_no_bits(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    seen: list[int] = []

    def sleep(what: str, *_: object, **__: object) -> None:
        if what == "server: training" and not seen:
            seen.append(1)
            monkeypatch.setattr(database_module.time, "monotonic", lambda: now + 3600)
            reopen(run).settle()

    fed = Federation(run, halves(), progress=sleep)
    with pytest.raises(FencedError):
        fed.unlearn("north", classes=["b"])
    assert fed.settle() == ()
    assert len(fed.receipts()) == 1
    assert fed.verify().exact


def test_the_lease_is_renewed_while_work_goes_on(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "LEASE_SECONDS", 0.15)
    database = reopen(run)._server.store.database
    with database.lease("long work"):
        first = query(database.path, "SELECT expires FROM lease")[0]["expires"]
        time.sleep(0.4)
        assert query(database.path, "SELECT expires FROM lease")[0]["expires"] > first + 0.2
        with pytest.raises(BusyError), reopen(run)._server.store.database.lease("other work"):
            pass
        with database.change() as db:
            db.execute("INSERT INTO meta VALUES ('still', 'mine')")
    assert query(database.path, "SELECT holder FROM lease")[0]["holder"] is None
