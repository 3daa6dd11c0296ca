"""What an insider with the databases of a run open can change: columns, rows, whole schemes, and files.

`benchmarks/suite/tampering.py` tries each of them, and sees who notices.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from splitwiper.store import ClientStore, ServerStore, ledger

Edit = Callable[[Path], None]


@contextmanager
def opened(path: Path, *, sealed: bool) -> Iterator[sqlite3.Connection]:
    """Open a database to edit it: with its key and a seal that is brought up to date, or without."""
    if sealed:
        store = ServerStore(path.parent) if path.name == "server.db" else ClientStore(path.parent)
        triggers = _triggers(store.database.db, "ledger_no_")
        with store.database.change() as db:
            for name, _ in triggers:
                db.execute(f"DROP TRIGGER {name}")
            db.execute("PRAGMA defer_foreign_keys = ON")
            yield db
            for _, sql in triggers:
                db.execute(sql)
        store.database.close()
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        triggers = _triggers(db, "")
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        yield db
        for _, sql in triggers:
            db.execute(sql)


def _triggers(db: sqlite3.Connection, begin: str) -> list[tuple[str, str]]:
    rows = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name").fetchall()
    return [(name, sql) for name, sql in map(tuple, rows) if name.startswith(begin)]


def edits(*, sealed: bool) -> dict[str, Edit]:
    """Every kind of edit: of each column, rows deleted and doubled in each table, and schemes of several steps.

    Args:
        sealed: the insider has the server's key, and edits only the server's database.
    """
    found: dict[str, Edit] = {}
    databases = ["server/server.db"] if sealed else ["server/server.db", "clients/north/client.db"]
    for database in databases:
        for table, columns in _layout(database).items():
            for column in columns:
                found[f"{database}: {table}.{column} changed"] = _changed(database, table, column, sealed)
            found[f"{database}: first row of {table} deleted"] = _deleted(database, table, "min", sealed)
            found[f"{database}: last row of {table} deleted"] = _deleted(database, table, "max", sealed)
            found[f"{database}: {table} emptied"] = _executed(database, f"DELETE FROM {table}", sealed)  # noqa: S608
    found |= {f"{name}": _scheme(scheme, sealed) for name, scheme in SCHEMES.items()}
    if not sealed:
        found |= FILES
    return found


def _layout(database: str) -> dict[str, list[str]]:
    from splitwiper.store import client_store, server_records

    schema = server_records.SCHEMA if database.startswith("server") else client_store.SCHEMA
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(f"CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);{schema}")
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")] for table in tables}


class NothingThere(Exception):
    """The table is empty: there is nothing to edit."""


def _changed(database: str, table: str, column: str, sealed: bool) -> Edit:
    def edit(run: Path) -> None:
        with opened(run / database, sealed=sealed) as db:
            rows = db.execute(f"SELECT {column} FROM {table} ORDER BY 1 DESC LIMIT 1").fetchall()  # noqa: S608
            if not rows:
                raise NothingThere
            value = rows[0][0]
            where = "IS NULL" if value is None else "= :old"
            db.execute(
                f"UPDATE {table} SET {column} = :new WHERE {column} {where}",  # noqa: S608
                {"new": _other(value), "old": value},
            )

    return edit


def _other(value: Any) -> Any:
    """Another value of the same kind, as close as can be."""
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1, *value[1:]]) if value else b"x"
    if isinstance(value, str):
        last = value[-1:] or "a"
        return value[:-1] + ("b" if last != "b" else "a")
    return "x" if value is None else value + 1


def _deleted(database: str, table: str, which: str, sealed: bool) -> Edit:
    def edit(run: Path) -> None:
        with opened(run / database, sealed=sealed) as db:
            first = _layout(database)[table][0]
            gone = db.execute(f"DELETE FROM {table} WHERE {first} = (SELECT {which}({first}) FROM {table})")  # noqa: S608
            if not gone.rowcount:
                raise NothingThere

    return edit


def _executed(database: str, sql: str, sealed: bool) -> Edit:
    def edit(run: Path) -> None:
        with opened(run / database, sealed=sealed) as db:
            if not db.execute(sql).rowcount:
                raise NothingThere

    return edit


def _scheme(steps: Callable[[sqlite3.Connection, Path], None], sealed: bool) -> Edit:
    def edit(run: Path) -> None:
        with opened(run / "server/server.db", sealed=sealed) as db:
            db.row_factory = sqlite3.Row
            steps(db, run)

    return edit


def chain_anew(db: sqlite3.Connection) -> None:
    """Give every entry of the ledger the number and hashes that its place demands."""
    bodies = [row[0] for row in db.execute("SELECT body FROM ledger ORDER BY seq").fetchall()]
    db.execute("DELETE FROM ledger")
    for body in bodies:
        ledger.append(db, json.loads(body))


def _cut_ledger(db: sqlite3.Connection, _: Path) -> None:
    db.execute("DELETE FROM ledger WHERE seq > 1")


def _last_entry_lost(db: sqlite3.Connection, _: Path) -> None:
    db.execute("DELETE FROM ledger WHERE seq = (SELECT max(seq) FROM ledger)")


def _commitment_replaced(db: sqlite3.Connection, _: Path) -> None:
    (ticket,) = db.execute("SELECT id FROM tickets ORDER BY rowid DESC LIMIT 1").fetchone()
    old = db.execute("SELECT commitment FROM tickets WHERE id = ?", (ticket,)).fetchone()[0]
    new = "ab" * 32
    db.execute(
        "UPDATE tickets SET commitment = ?, receipt = replace(receipt, ?, ?) WHERE id = ?", (new, old, new, ticket)
    )
    db.execute("UPDATE ledger SET body = replace(body, ?, ?)", (old, new))
    chain_anew(db)


def request_unmade(db: sqlite3.Connection, _: Path) -> None:
    """Unmake the last request, as if it had never been made."""
    (ticket,) = db.execute("SELECT id FROM tickets ORDER BY rowid DESC LIMIT 1").fetchone()
    db.execute("DELETE FROM tickets WHERE id = ?", (ticket,))
    db.execute("DELETE FROM ledger WHERE body LIKE ?", (f"%{ticket}%",))
    chain_anew(db)


def _forged_receipt(db: sqlite3.Connection, _: Path) -> None:
    """A receipt for a request that nobody made, with entries of the ledger that say it was asked and settled."""
    from splitwiper.store.tickets import receipt_digest
    from splitwiper.wire import Receipt

    row = dict(db.execute("SELECT * FROM tickets WHERE client = 'north'").fetchone())
    forged = Receipt.from_dict({**json.loads(row["receipt"]), "ticket": "f" * 32, "ledger": {}})
    asked = {name: row[name] for name in ("client", "level", "commitment", "received")}
    ledger.append(db, {"kind": "accepted", "ticket": forged.ticket, **asked})
    entry = ledger.append(db, {"kind": "settled", "ticket": forged.ticket, "receipt": receipt_digest(forged)})
    final = json.dumps({**forged.to_dict(), "ledger": entry})
    row |= {"id": forged.ticket, "receipt": final}
    db.execute(f"INSERT INTO tickets VALUES ({', '.join('?' * len(row))})", tuple(row.values()))  # noqa: S608


def _shard_dropped(db: sqlite3.Connection, _: Path) -> None:
    db.execute("DELETE FROM shards WHERE client = 'south'")
    db.execute("UPDATE clients SET generation = generation + 1 WHERE name = 'south'")
    ledger.append(db, {"kind": "withdrawn", "client": "south"})


def _other_shard(db: sqlite3.Connection, run: Path) -> None:
    """Another shard in place of a client's, with everything the server records of it made to fit."""
    from splitwiper.store.files import file_digest
    from splitwiper.wire.commitments import shard_commitment

    rows = {row["client"]: dict(row) for row in db.execute("SELECT * FROM shards").fetchall()}
    other = run / "server/shards" / rows["north"]["file"]
    shutil.copy(other, run / "server/shards/shard-forged.safetensors")
    salt, digest = rows["south"]["salt"], file_digest(other)
    db.execute(
        "UPDATE shards SET file = 'shard-forged.safetensors', digest = ?, rows = ?, labels = ?, size = ? "
        "WHERE client = 'south'",
        (digest, rows["north"]["rows"], rows["north"]["labels"], rows["north"]["size"]),
    )
    ledger.append(db, {"kind": "shard", "client": "south", "shard": shard_commitment(salt, digest)})
    db.execute("UPDATE clients SET generation = generation + 1 WHERE name = 'south'")


def _level_changed(db: sqlite3.Connection, _: Path) -> None:
    db.execute("UPDATE tickets SET level = 'sample' WHERE client = 'north'")
    db.execute("""UPDATE ledger SET body = replace(body, '"level":"class"', '"level":"sample"')""")
    chain_anew(db)


def _times_changed(db: sqlite3.Connection, _: Path) -> None:
    db.execute('UPDATE ledger SET body = replace(body, \'"received":"20\', \'"received":"19\')')
    db.execute("UPDATE tickets SET received = '19' || substr(received, 3)")
    chain_anew(db)


def _hashes_claimed(db: sqlite3.Connection, _: Path) -> None:
    """Rebuild the ledger with other times, with entries that claim their earlier hashes."""
    rows = db.execute("SELECT body, hash FROM ledger ORDER BY seq").fetchall()
    db.execute("UPDATE tickets SET received = '19' || substr(received, 3)")
    db.execute("DELETE FROM ledger")
    for body, value in map(tuple, rows):
        ledger.append(db, {**json.loads(body.replace('"received":"20', '"received":"19')), "hash": value})


def _asked_twice(db: sqlite3.Connection, _: Path) -> None:
    """Accept a settled ticket once more, at another level, after everything that is remembered of the ledger."""
    row = dict(db.execute("SELECT * FROM tickets WHERE client = 'north'").fetchone())
    asked = {name: row[name] for name in ("client", "commitment", "received")}
    ledger.append(db, {"kind": "accepted", "ticket": row["id"], **asked, "level": "sample"})
    db.execute("UPDATE tickets SET level = 'sample' WHERE client = 'north'")


def _made_twice(db: sqlite3.Connection, _: Path) -> None:
    """A second entry that says how the run was made."""
    made = json.loads(db.execute("SELECT body FROM ledger WHERE seq = 1").fetchone()[0])
    ledger.append(db, {**made, "at": "elsewhere"})
    db.execute("UPDATE meta SET value = 'elsewhere' WHERE key = 'at'")


def _settings_changed(db: sqlite3.Connection, run: Path) -> None:
    path = run / "server/config.toml"
    path.write_text(path.read_text().replace("epochs = 2", "epochs = 3"))


SCHEMES: dict[str, Callable[[sqlite3.Connection, Path], None]] = {
    "ledger cut to its first entry": _cut_ledger,
    "last entry of the ledger lost": _last_entry_lost,
    "another commitment in ticket, receipt and ledger, the chain rebuilt": _commitment_replaced,
    "a request removed from tickets and ledger, the chain rebuilt": request_unmade,
    "a forged receipt with its entries in the ledger": _forged_receipt,
    "a shard dropped, with its entry in the ledger": _shard_dropped,
    "another shard put in place, with its entry in the ledger": _other_shard,
    "a request's level changed everywhere, the chain rebuilt": _level_changed,
    "times changed everywhere, the chain rebuilt": _times_changed,
    "hashes claimed by entries, the chain rebuilt": _hashes_claimed,
    "a settled ticket accepted once more": _asked_twice,
    "the run made once more": _made_twice,
    "other settings of the server": _settings_changed,
}


def _first(run: Path, pattern: str) -> Path:
    return sorted(run.glob(pattern))[0]


def _swap(run: Path, one: str, other: str) -> None:
    a, b = _first(run, one), _first(run, other)
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)


def _two(run: Path, pattern: str) -> None:
    a, b = sorted(run.glob(pattern))[:2]
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)


_PATTERNS = {
    "slice": "clients/north/slices/*",
    "checkpoint": "clients/north/checkpoints/*",
    "half": "clients/north/half/*",
    "shard": "server/shards/*",
    "model": "server/models/*",
    "state after an epoch": "server/epochs/*",
    "first weights of the server": "server/initial.safetensors",
    "first weights of clients": "server/client-initial.safetensors",
    "first weights of a client": "clients/north/initial.safetensors",
    "client's key": "clients/north/key",
    "server's key": "server/key",
    "client's settings": "clients/north/config.toml",
    "server's settings": "server/config.toml",
    "run's settings": "federation.toml",
    "client's database": "clients/north/client.db",
    "server's database": "server/server.db",
}
FILES: dict[str, Edit] = {
    **{f"{what} deleted": (lambda run, p=p: _first(run, p).unlink()) for what, p in _PATTERNS.items()},  # type: ignore[misc]
    **{f"{what} emptied": (lambda run, p=p: _first(run, p).write_bytes(b"")) for what, p in _PATTERNS.items()},  # type: ignore[misc]
    "states of two epochs swapped": lambda run: _two(run, "server/epochs/*"),
    "two slices swapped": lambda run: _two(run, "clients/north/slices/*"),
    "two shards swapped": lambda run: _two(run, "server/shards/*"),
    "databases of two clients swapped": lambda run: _swap(run, "clients/north/client.db", "clients/south/client.db"),
    "keys of two clients swapped": lambda run: _swap(run, "clients/north/key", "clients/south/key"),
    "folder of a client replaced by another's": lambda run: (
        shutil.rmtree(run / "clients/south"),
        shutil.copytree(run / "clients/north", run / "clients/south"),
        None,
    )[-1],
    "a file put into the run folder": lambda run: (run / "server/shards/stray.safetensors").write_bytes(b"x") and None,  # type: ignore[func-returns-value]
}
