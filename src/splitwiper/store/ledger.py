"""The ledger: append-only, each entry holding the hash of the one before.

Entries hold HMACs under salts that are erased with what they commit to. They never name classes, ids or content.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splitwiper.errors import CorruptError, FormatError
from splitwiper.formats import canonical_json
from splitwiper.store.database import Database

SCHEMA = """
CREATE TABLE ledger (seq INTEGER PRIMARY KEY, prev TEXT NOT NULL, body TEXT NOT NULL, hash TEXT NOT NULL);
CREATE INDEX ledger_by_client ON ledger (json_extract(body, '$.client'), json_extract(body, '$.kind'));
CREATE INDEX ledger_by_kind ON ledger (json_extract(body, '$.kind'));
CREATE TRIGGER ledger_no_update BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER ledger_no_delete BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
"""
_KIND, _CLIENT = "json_extract(body, '$.kind')", "json_extract(body, '$.client')"
"""As in the indices; entries with equal keys are in the order of their numbers."""
START = "0" * 64
WITHDRAWERS = ("training", "operator", "lapse", "pace")
"""Who withdraws a shard, other than its client: training, which failed because of it; an operator; a lapse,
because the client requested forgetting and then fell silent; or the pace: a client that makes many requests while
others wait must wait with its new shard, too."""


@dataclass(frozen=True, order=True)
class Head:
    """The state of a ledger: its number of entries, and the hash of the last, which covers all before it."""

    size: int
    hash: str

    def __str__(self) -> str:
        return f"{self.size}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Parse a head from its text.

        >>> Head.parse(f"3:{'0' * 64}").size
        3
        """
        if (match := re.fullmatch(r"(\d{1,15}):([0-9a-f]{64})", text.strip())) is None:
            raise FormatError(
                f"{text[:80]!r} is not a ledger's head: it is written as SIZE:HASH, as 'status' shows it."
            )
        return cls(int(match[1]), match[2])


def head(database: Database) -> Head:
    """Return the present head of a ledger."""
    row = database.one("SELECT seq, hash FROM ledger ORDER BY seq DESC LIMIT 1")
    return Head(int(row["seq"]), str(row["hash"])) if row else Head(0, START)


def has(database: Database, known: Head) -> bool:
    """Return whether a head is one that this ledger had."""
    if known.size == 0:
        return known.hash == START
    row = database.one("SELECT hash FROM ledger WHERE seq = ?", (known.size,))
    return row is not None and row["hash"] == known.hash


def _hash(seq: int, prev: str, body: str) -> str:
    return hashlib.sha256(f"{seq}\n{prev}\n{body}".encode()).hexdigest()


def append(db: sqlite3.Connection, body: Mapping[str, Any]) -> dict[str, Any]:
    """Append an entry inside the caller's transaction; return its sequence number and hash."""
    row = db.execute("SELECT seq, hash FROM ledger ORDER BY seq DESC LIMIT 1").fetchone()
    seq, prev = (int(row["seq"]) + 1, str(row["hash"])) if row else (1, START)
    text = canonical_json(body)
    value = _hash(seq, prev, text)
    db.execute("INSERT INTO ledger VALUES (?, ?, ?, ?)", (seq, prev, text, value))
    return {"seq": seq, "hash": value}


def newest(db: sqlite3.Connection, client: str, kinds: Sequence[str]) -> Mapping[str, Any] | None:
    """Return the newest entry about a client that is of one of these kinds, with its number as ``seq``."""
    sql = f"SELECT seq, body FROM ledger WHERE {_CLIENT} = ? AND {_KIND} = ? ORDER BY seq DESC LIMIT 1"  # noqa: S608
    newest_row: sqlite3.Row | None = None
    for kind in kinds:  # one query per kind, because the index finds the newest of each directly
        row = db.execute(sql, (client, kind)).fetchone()
        if row is not None and (newest_row is None or row["seq"] > newest_row["seq"]):
            newest_row = row
    return {**json.loads(newest_row["body"]), "seq": int(newest_row["seq"])} if newest_row else None


def registered(db: sqlite3.Connection, client: str) -> str:
    """Return the key that a client registered last; empty if it has none, or an operator dropped it."""
    entry = newest(db, client, ("joined", "key-dropped")) or {}
    return str(entry["key"]) if entry.get("kind") == "joined" else ""


def is_evicted(db: sqlite3.Connection, client: str) -> bool:
    """Return whether an operator evicted a client and did not admit it again."""
    entry = newest(db, client, ("evicted", "admitted"))
    return entry is not None and entry["kind"] == "evicted"


def has_lapsed(db: sqlite3.Connection, client: str) -> bool:
    """Return whether a client ever requested forgetting and then was silent for too long."""
    return newest(db, client, ("lapsed",)) is not None


def shards_since_model(db: sqlite3.Connection) -> Counter[str]:
    """Return how many shards each client has sent since the newest entry about a model."""
    last = db.execute(f"SELECT seq FROM ledger WHERE {_KIND} = 'model' ORDER BY seq DESC LIMIT 1").fetchone()  # noqa: S608
    rows = db.execute(
        f"SELECT {_CLIENT} AS client FROM ledger WHERE {_KIND} = 'shard' AND seq > ?",  # noqa: S608
        (last["seq"] if last else 0,),
    )
    return Counter(str(row["client"]) for row in rows)


def entries(database: Database, *, known: Sequence[Mapping[str, Any]] = ()) -> list[Mapping[str, Any]]:
    """Return all entries, checked: none was changed, removed or inserted.

    If the last of the ``known`` entries, which were checked before, is unchanged, only those after it are read, since
    its hash covers all before it.
    """
    if known:
        last = database.one("SELECT hash FROM ledger WHERE seq = ?", (len(known),))
        known = known if last is not None and last["hash"] == known[-1]["hash"] else ()
    out = list(known)
    prev = str(out[-1]["hash"]) if out else START
    rows = database.read("SELECT * FROM ledger WHERE seq > ? OR seq < 1 ORDER BY seq", (len(out),))
    for number, row in enumerate(rows, start=len(out) + 1):
        if (row["seq"], row["prev"], row["hash"]) != (number, prev, _hash(number, prev, row["body"])):
            raise CorruptError(f"the ledger's chain breaks at entry {number}: it was altered. Restore a backup.")
        prev = row["hash"]
        out.append({**_parsed(row["body"], number), "seq": number, "hash": prev})
    return out


def _parsed(body: str, number: int) -> dict[str, Any]:
    """Parse an entry's own fields. A body with its own number or hash is refused: it could pass for another entry."""
    altered = CorruptError(f"entry {number} of the ledger cannot be read: it was altered. Restore a backup.")
    try:
        fields = dict(json.loads(body))
    except (ValueError, TypeError, RecursionError) as problem:
        raise altered from problem
    if fields.keys() & {"seq", "hash"}:
        raise altered
    return fields
