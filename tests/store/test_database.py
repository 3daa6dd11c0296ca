"""Databases: whole or not there, changed all or nothing, by one holder at a time."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from splitwiper.errors import (
    BusyError,
    CorruptError,
    DiskFullError,
    FencedError,
    FormatError,
    NotFoundError,
    StoreError,
)
from splitwiper.store import database as module
from splitwiper.store import files, sealing
from splitwiper.store.database import Database

SCHEMA = "CREATE TABLE things (name TEXT PRIMARY KEY);"


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = Database(tmp_path / "a" / "database.db", SCHEMA)
    made.create({})
    return made


def names(database: Database) -> list[str]:
    return [row["name"] for row in database.read("SELECT name FROM things ORDER BY name")]


def put(database: Database, name: str) -> None:
    with database.change() as db:
        db.execute("INSERT INTO things VALUES (?)", (name,))


def test_threads_that_share_a_database_change_it_in_turn(database: Database) -> None:
    other, seen = threading.Thread(target=put, args=(database, "other")), list[str]()
    reader = threading.Thread(target=lambda: seen.extend(names(database)))
    with database.change() as db:
        db.execute("INSERT INTO things VALUES ('half')")
        other.start(), reader.start()
        other.join(0.2)
        assert not seen
        db.execute("DELETE FROM things")
        db.execute("INSERT INTO things VALUES ('whole')")
    other.join(), reader.join()
    assert names(database) == ["other", "whole"] and "half" not in seen


def test_a_lease_is_one_threads(database: Database) -> None:
    refused: list[str] = []

    def work() -> None:
        try:
            with database.lease("forgetting"):
                refused.append("no")
        except BusyError as problem:
            refused.append(str(problem))

    with database.lease("learning"), database.lease("nested"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    work()
    assert "(learning). Wait for it" in refused[0] and refused[1:] == ["no"]


# --- making and opening -------------------------------------------------------------------------------------


def test_a_book_is_made_once_and_never_over_another(tmp_path: Path) -> None:
    first, second = (Database(tmp_path / "database.db", SCHEMA) for _ in range(2))
    held: list[str] = []

    def slow(kind: str, path: Path) -> None:
        if kind == "rename:before" and not held:  # between looking and making, another process makes it
            held.append(kind)
            second.create({})
            put(second, "theirs")

    with files.watch(slow):
        first.create({})
    assert held
    assert names(first) == ["theirs"]
    first.create({})
    assert names(first) == ["theirs"]
    assert [p.name for p in tmp_path.iterdir()] == ["database.db"]


def test_what_is_not_a_book_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="not a SplitWiper folder"):
        Database(tmp_path / "none.db", SCHEMA).read("SELECT 1")
    for name, content in (("text.db", b"this is no database, not at all" * 9), ("short.db", b"SQLite format 3\0")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises((CorruptError, FormatError), match=name):
            Database(tmp_path / name, SCHEMA).read("SELECT 1")
    (tmp_path / "empty.db").touch()
    with pytest.raises(FormatError, match="interrupted"):
        Database(tmp_path / "empty.db", SCHEMA).read("SELECT 1")
    with closing(sqlite3.connect(tmp_path / "other.db", isolation_level=None)) as db:
        db.execute("CREATE TABLE x (y)")
        db.execute("PRAGMA user_version = 1")
    with pytest.raises(FormatError, match="not a SplitWiper database"):
        Database(tmp_path / "other.db", SCHEMA).read("SELECT 1")


def test_a_newer_book_is_refused(database: Database) -> None:
    database.close()
    with closing(sqlite3.connect(database.path)) as db:
        db.execute(f"PRAGMA user_version = {module.VERSION + 1}")
    with pytest.raises(FormatError, match="newer SplitWiper"):
        database.read("SELECT 1")


def test_deletions_overwrite_and_writes_are_synced(database: Database) -> None:
    for pragma, value in (("secure_delete", 1), ("synchronous", 3), ("foreign_keys", 1), ("journal_mode", "delete")):
        assert database.db.execute(f"PRAGMA {pragma}").fetchone()[0] == value


# --- changes ------------------------------------------------------------------------------------------------


def test_a_change_is_all_or_nothing(database: Database) -> None:
    put(database, "kept")
    with pytest.raises(RuntimeError, match="stop"), database.change() as db:
        db.execute("INSERT INTO things VALUES ('lost')")
        raise RuntimeError("stop")
    assert names(database) == ["kept"]
    with pytest.raises(sqlite3.IntegrityError):
        put(database, "kept")
    put(database, "next")
    assert names(database) == ["kept", "next"]


def test_a_change_that_finds_no_room_changes_nothing(database: Database) -> None:
    pages = database.db.execute("PRAGMA page_count").fetchone()[0]
    database.db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DiskFullError, match="same command again"), database.change() as db:
        db.executemany("INSERT INTO things VALUES (?)", [(f"{i:0100}",) for i in range(500)])
    assert names(database) == []
    database.db.execute("PRAGMA max_page_count = 100000")
    put(database, "fits")
    assert names(database) == ["fits"]


def test_a_locked_book_is_busy_not_corrupt(database: Database) -> None:
    database.db.execute("PRAGMA busy_timeout = 1")
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(BusyError, match="locked by another process; try again"):
            put(database, "x")
        with pytest.raises(BusyError, match="locked"):
            names(database)
    put(database, "x")


@pytest.mark.parametrize("where", ["in the function", "when it is called"])
def test_an_interrupt_while_a_row_is_sealed_is_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """SQLite says of it only that a function failed, which is no trouble of the disk."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    made = Database(tmp_path / "database.db", SCHEMA, lambda: b"k" * 32)
    made.create({})
    with monkeypatch.context() as now:
        if where == "in the function":
            now.setattr(sealing, "_weight", interrupted)
        else:
            made.db.create_function("seal_row", -1, interrupted)
        with pytest.raises(KeyboardInterrupt):
            put(made, "lost")
    made.close()
    with closing(sqlite3.connect(made.path)) as other:
        other.execute("BEGIN IMMEDIATE")
        made.db.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(BusyError):  # what went wrong before is not what is wrong now
            put(made, "later")
    put(made, "kept")
    assert names(made) == ["kept"] and made._sealed(made.db)


def test_a_book_that_cannot_be_written_says_so(database: Database) -> None:
    database.db.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError, match="permissions"):
        put(database, "x")


# --- the lease ----------------------------------------------------------------------------------------------


def twin(database: Database) -> Database:
    return Database(database.path, SCHEMA)


def test_one_holder_at_a_time(database: Database) -> None:
    with database.lease("first"):
        with (
            pytest.raises(BusyError, match=r"in use by process .*first.*run this again"),
            twin(database).lease("second"),
        ):
            pass
        assert "first, by process" in (twin(database).holder() or "")
        with database.lease("nested"):
            put(database, "a")
        put(database, "b")
    assert database.holder() is None
    with twin(database).lease("second"):
        pass
    assert names(database) == ["a", "b"]


def test_a_lost_lease_is_noticed_at_the_next_change(database: Database) -> None:
    other = twin(database)
    with pytest.raises(FencedError, match=r"took over .*lease 2, ours was 1"), database.lease("first"):
        put(database, "before")
        other.db.execute("UPDATE lease SET since = -1e6, expires = 0")
        with other.lease("second"):
            put(other, "theirs")
        put(database, "after")
    assert names(database) == ["before", "theirs"]
    with database.lease("again"):
        put(database, "later")
    assert names(database) == ["before", "later", "theirs"]


def test_the_loser_does_not_release_the_winner_s_lease(database: Database) -> None:
    other = twin(database)
    with other.lease("never mind"):
        pass
    with database.lease("first"):
        other.db.execute("UPDATE lease SET since = -1e6, expires = 0")
        winner = other.lease("second")
        winner.__enter__()
    assert "second" in (database.holder() or "")
    winner.__exit__(None, None, None)
    assert database.holder() is None


def test_a_missing_file_is_put_down_to_the_successor_only_if_there_is_one(database: Database) -> None:
    other = twin(database)
    with pytest.raises(FileNotFoundError), database.lease("first"):
        raise FileNotFoundError("gone")
    with pytest.raises(FencedError), database.lease("first"):
        other.db.execute("UPDATE lease SET since = -1e6, expires = 0")
        with other.lease("second"):
            raise FileNotFoundError("swept")


def test_a_lease_that_could_not_be_given_back_is_taken_up_again(database: Database) -> None:
    def full(kind: str, _path: Path) -> None:
        if kind == "commit:before":
            raise OSError(28, "No space left on device")

    with database.lease("first"), files.watch(full), pytest.raises(DiskFullError):
        put(database, "x")
    watch = files.watch(full)
    with database.lease("second"):
        watch.__enter__()
    watch.__exit__(None, None, None)
    assert "interrupted" in (twin(database).holder() or "")
    with twin(database).lease("third"):
        put(database, "y")
    assert names(database) == ["y"]


@pytest.mark.parametrize("moment", ["join", "commit:before", "commit:after"])
def test_an_interrupt_while_a_lease_is_given_back_blocks_nobody(
    database: Database, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The process that was interrupted goes on at once, with the same database and with another one."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def at_commit(kind: str, _path: Path) -> None:
        if kind == moment:
            interrupt()

    watch = files.watch(at_commit)
    # as long as the traceback is kept, so are the variables in it
    with pytest.raises(KeyboardInterrupt) as kept, database.lease("first"):
        watch.__enter__()
        if moment == "join":
            monkeypatch.setattr(threading.Thread, "join", interrupt)
    monkeypatch.undo()
    watch.__exit__(None, None, None)
    assert not database.is_held()
    for next_one in (database, twin(database)):
        with next_one.lease("second"):
            put(next_one, f"{moment} {id(next_one)}")
    assert kept.type is KeyboardInterrupt and len(names(database)) == 2


def test_no_thread_outlives_its_lease(database: Database) -> None:
    before = threading.active_count()
    with database.lease("work"):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


# --- threads of one process --------------------------------------------------------------------------------------


def test_a_check_waits_for_another_thread_s_change(tmp_path: Path) -> None:
    """Otherwise it would compare the seal with rows that are not committed yet."""
    database = Database(tmp_path / "database.db", SCHEMA, lambda: b"k" * 32)
    database.create({})
    began, may_end = threading.Event(), threading.Event()

    def change() -> None:
        with database.change() as db:
            db.execute("INSERT INTO things VALUES ('a')")
            began.set()
            may_end.wait(20)

    thread = threading.Thread(target=change)
    thread.start()
    assert began.wait(20)
    threading.Timer(0.2, may_end.set).start()
    database.check()
    thread.join()
    assert names(database) == ["a"]


def test_a_thread_that_lost_its_lease_to_another_thread_changes_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEASE_SECONDS", 0.05)
    monkeypatch.setattr(Database, "_renew", lambda _self, _token, stop: stop.wait())
    first_in, second_in = threading.Event(), threading.Event()
    fenced: list[FencedError] = []

    def first() -> None:
        with database.lease("first"):
            first_in.set()
            second_in.wait(20)
            try:
                put(database, "late")
            except FencedError as problem:
                fenced.append(problem)

    thread = threading.Thread(target=first)
    thread.start()
    assert first_in.wait(20)
    time.sleep(0.2)  # beyond the lease
    with database.lease("second"):
        second_in.set()
        thread.join()
        put(database, "in time")
    assert fenced and names(database) == ["in time"]
