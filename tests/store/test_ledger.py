"""The ledger: it only grows, and any change to it shows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from splitwiper.errors import CorruptError
from splitwiper.store import ledger
from splitwiper.store.database import Database

ENTRIES = 6


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = Database(tmp_path / "database.db", ledger.SCHEMA)
    made.create({})
    for number in range(ENTRIES):
        with made.change() as db:
            ledger.append(db, {"kind": "note", "number": number})
    return made


def tamper(database: Database, sql: str) -> None:
    """Change the ledger as somebody with the file in hand could."""
    database.close()
    with closing(sqlite3.connect(database.path, isolation_level=None)) as db:
        for (trigger,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {trigger}")
        assert db.execute(sql).rowcount > 0


def test_entries_come_back_in_order_and_chained(database: Database) -> None:
    entries = ledger.entries(database)
    assert [(entry["seq"], entry["number"]) for entry in entries] == [(i + 1, i) for i in range(ENTRIES)]
    rows = database.read("SELECT * FROM ledger ORDER BY seq")
    assert [row["prev"] for row in rows] == [ledger.START, *(row["hash"] for row in rows[:-1])]


def test_an_empty_ledger_holds(tmp_path: Path) -> None:
    made = Database(tmp_path / "database.db", ledger.SCHEMA)
    made.create({})
    assert ledger.entries(made) == []


@pytest.mark.parametrize(
    "sql", ["UPDATE ledger SET body = '{}'", "DELETE FROM ledger", "DELETE FROM ledger WHERE seq = 6"]
)
def test_the_database_itself_refuses_changes(database: Database, sql: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="only grows"), database.change() as db:
        db.execute(sql)
    assert len(ledger.entries(database)) == ENTRIES


@pytest.mark.parametrize("seq", range(1, ENTRIES + 1))
@pytest.mark.parametrize(
    "change",
    [
        "body = replace(body, 'note', 'nope')",
        "body = body || ' '",
        "hash = replace(hash, substr(hash, 1, 1), 'x')",
        "prev = replace(prev, substr(prev, 1, 1), 'x')",
        "seq = seq + 100",
    ],
)
def test_a_change_to_any_entry_is_found(database: Database, seq: int, change: str) -> None:
    tamper(database, f"UPDATE ledger SET {change} WHERE seq = {seq}")
    with pytest.raises(CorruptError, match="chain breaks at entry"):
        ledger.entries(database)


@pytest.mark.parametrize("seq", range(1, ENTRIES))
def test_a_removed_entry_is_found(database: Database, seq: int) -> None:
    tamper(database, f"DELETE FROM ledger WHERE seq = {seq}")
    with pytest.raises(CorruptError, match=f"entry {seq}"):
        ledger.entries(database)


def test_an_inserted_entry_is_found(database: Database) -> None:
    tamper(database, "INSERT INTO ledger SELECT 0, prev, body, hash FROM ledger WHERE seq = 1")
    with pytest.raises(CorruptError, match="entry 1"):
        ledger.entries(database)


def test_swapped_entries_are_found(database: Database) -> None:
    tamper(database, "UPDATE ledger SET seq = -seq WHERE seq IN (2, 3)")
    tamper(database, "UPDATE ledger SET seq = 5 + seq WHERE seq IN (-2, -3)")
    with pytest.raises(CorruptError, match="entry 2"):
        ledger.entries(database)


def test_a_rewritten_entry_with_a_fitting_hash_breaks_the_next(database: Database) -> None:
    rows = database.read("SELECT * FROM ledger ORDER BY seq")
    body = '{"kind":"forged"}'
    forged = ledger._hash(3, rows[2]["prev"], body)
    tamper(database, f"UPDATE ledger SET body = '{body}', hash = '{forged}' WHERE seq = 3")
    with pytest.raises(CorruptError, match="entry 4"):
        ledger.entries(database)


# --- indices -----------------------------------------------------------------------------------------------------


def without_indices(database: Database) -> None:
    """Make a database what it was before the ledger had indices."""
    database.close()
    with closing(sqlite3.connect(database.path)) as db:
        for name in ("ledger_by_client", "ledger_by_kind"):
            db.execute(f"DROP INDEX {name}")


def test_what_is_asked_of_the_ledger_reads_none_but_the_entries_it_is_about(database: Database) -> None:
    asked: list[str] = []
    database.db.set_trace_callback(asked.append)
    ledger.newest(database.db, "north", ("shard", "withdrawn"))
    ledger.has_lapsed(database.db, "north")
    ledger.shards_since_model(database.db)
    database.db.set_trace_callback(None)
    plans = [tuple(row)[3] for sql in asked for row in database.db.execute(f"EXPLAIN QUERY PLAN {sql}")]
    assert len(plans) == 5 and all(plan.startswith("SEARCH ledger USING INDEX ledger_by_") for plan in plans)


def test_a_store_from_before_the_indices_gets_them_when_it_is_opened(tmp_path: Path) -> None:
    made = Database(tmp_path / "database.db", ledger.SCHEMA, lambda: b"k" * 32)
    made.create({})
    with made.change() as db:
        ledger.append(db, {"kind": "shard", "client": "north"})
    whole = made.read("SELECT sql FROM sqlite_master ORDER BY name")
    without_indices(made)
    again = Database(made.path, ledger.SCHEMA, lambda: b"k" * 32)
    assert ledger.shards_since_model(again.db) == {"north": 1}
    assert again.read("SELECT sql FROM sqlite_master ORDER BY name") == whole
    again.check()


def test_a_store_without_the_indices_holds_where_it_can_only_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Database(tmp_path / "database.db", ledger.SCHEMA, lambda: b"k" * 32)
    made.create({"run": "r"})
    without_indices(made)
    monkeypatch.setattr(Database, "is_writable", lambda _: False)
    made.check()
    assert ledger.newest(made.db, "north", ("shard",)) is None
    made.close()
    with closing(sqlite3.connect(made.path)) as db:
        db.execute("CREATE INDEX ledger_by_client ON ledger (hash)")
    with pytest.raises(CorruptError, match="changed by something other"):
        made.check()
