"""Tickets and receipts: requests to the server, the state of each, and the record of its answer.

Functions on an open transaction of the server's database, so a ticket changes together with what it is about.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from splitwiper.errors import CorruptError
from splitwiper.seeding import digest, mac
from splitwiper.store import ledger
from splitwiper.store.records import parsed
from splitwiper.wire import Receipt, Request, Spent, Statement
from splitwiper.wire.commitments import model_commitment, shard_commitment

_MOST_SECONDS, _MOST_BYTES = 1e9, 1 << 50
"""The most that one client can be charged: seconds and bytes."""
_NOBODY: Mapping[str, Any] = {"contacted": 0, "bytes": 0, "seconds": 0}
"""The cost to other clients when nobody else did anything."""
SCHEMA = """
CREATE TABLE tickets (
  id TEXT PRIMARY KEY, client TEXT NOT NULL, level TEXT NOT NULL, commitment TEXT NOT NULL, state TEXT NOT NULL,
  received TEXT NOT NULL, before TEXT NOT NULL, statement TEXT, receipt TEXT, erased TEXT, settled TEXT);
CREATE INDEX tickets_by_client ON tickets (client);
CREATE TABLE spent (client TEXT PRIMARY KEY, seconds REAL, bytes_up INTEGER, bytes_down INTEGER);
"""


def now() -> str:
    """Return the time, for people; it never enters a stream or a digest."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def commitments(db: sqlite3.Connection, client: str) -> dict[str, str | None]:
    """Commit to a client's shard, the manifest and the model, each with an HMAC under a salt that is erased with it."""
    shard = db.execute("SELECT salt, digest FROM shards WHERE client = ?", (client,)).fetchone()
    model = db.execute("SELECT salt, digest, manifest FROM model").fetchone()
    return {
        "shard": shard_commitment(shard["salt"], shard["digest"]) if shard else None,
        "manifest": mac(model["salt"], "manifest", model["manifest"]).hex() if model else None,
        "model": model_commitment(model["salt"], model["digest"]) if model else None,
    }


def submit(db: sqlite3.Connection, request: Request) -> None:
    """Record a request unless it is recorded. The ledger has its commitment before anything is erased."""
    if db.execute("SELECT 1 FROM tickets WHERE id = ?", (request.ticket,)).fetchone() is None:
        recorded = {**asdict(request), "received": now()}
        db.execute(
            "INSERT INTO tickets VALUES (:ticket, :client, :level, :commitment, 'accepted', :received, :before, NULL, "
            "NULL, NULL, NULL)",
            {**recorded, "before": json.dumps(commitments(db, request.client))},
        )
        ledger.append(db, {"kind": "accepted", **recorded})


def accepted(db: sqlite3.Connection, client: str) -> list[str]:
    """Return the tickets of a client that are not answered yet, oldest first."""
    rows = db.execute("SELECT id FROM tickets WHERE client = ? AND state = 'accepted' ORDER BY rowid", (client,))
    return [str(row["id"]) for row in rows]


def charge(db: sqlite3.Connection, client: str, spent: Spent, size: int) -> None:
    """Add to what a client spent on the requests that the next model answers.

    The client itself reports it, so it is bounded: sums of it go into certificates.
    """
    seconds = spent.seconds if 0 <= spent.seconds <= _MOST_SECONDS else 0.0  # not NaN either
    up = min(max(0, spent.bytes_up + size), _MOST_BYTES)
    down = min(max(0, spent.bytes_down), _MOST_BYTES)
    db.execute(
        "INSERT INTO spent VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
        "seconds = min(seconds + excluded.seconds, ?), bytes_up = min(bytes_up + excluded.bytes_up, ?), "
        "bytes_down = min(bytes_down + excluded.bytes_down, ?)",
        (client, seconds, up, down, _MOST_SECONDS, _MOST_BYTES, _MOST_BYTES),
    )


def answer(
    db: sqlite3.Connection,
    client: str,
    statement: Statement | None,
    tickets: Sequence[str],
    *,
    size: int = 0,
    warm: bool,
) -> None:
    """Mark tickets as erased; a model that knew the data is erased too, unless a warm start continues from it.

    The client's cost, with the ``size`` in bytes of what it sent, is charged only if a ticket of its own was answered:
    what it spends on learning, or reports for tickets that are not open, is not a cost of unlearning. There is no
    statement if the server or an operator answers the tickets.
    """
    text = json.dumps(asdict(statement)) if statement else None
    # Only open tickets of this very client: a client that names another's ticket, or one that was answered before,
    # changes nothing, and repeating an upload after a lost acknowledgement does no harm.
    erased = 0
    for ticket in tickets:
        erased += db.execute(
            "UPDATE tickets SET state = 'erased', erased = ?, statement = ? "
            "WHERE id = ? AND client = ? AND state = 'accepted'",
            (now(), text, ticket, client),
        ).rowcount
    if erased and not warm:
        db.execute("DELETE FROM model")
    if erased and statement is not None:
        charge(db, client, statement.spent, size)


def settle_empty(db: sqlite3.Connection, ticket: str) -> None:
    """Settle a request of a client that neither shards nor model know: nothing has to be erased."""
    row = db.execute("SELECT * FROM tickets WHERE id = ? AND state = 'accepted'", (ticket,)).fetchone()
    if row is not None:
        _receipt(db, row, _NOBODY, trained=False)


def settle(db: sqlite3.Connection) -> tuple[Receipt, ...]:
    """Write the receipts of all erased tickets, in the transaction that publishes the model that answers them."""
    rows = db.execute("SELECT * FROM tickets WHERE state = 'erased' ORDER BY rowid").fetchall()
    others = _others(db)
    receipts = [_receipt(db, row, others) for row in rows]
    db.execute("DELETE FROM spent")
    return tuple(receipts)


def _others(db: sqlite3.Connection) -> dict[str, Any]:
    """Return the cost to clients that requested nothing themselves: by design, zero."""
    row = db.execute(
        "SELECT count(*) AS contacted, coalesce(sum(bytes_up + bytes_down), 0) AS bytes, "
        "coalesce(sum(seconds), 0) AS seconds FROM spent "
        "WHERE client NOT IN (SELECT client FROM tickets WHERE state = 'erased') "
        "AND (seconds > 0 OR bytes_up > 0 OR bytes_down > 0)"
    ).fetchone()
    return dict(row)


def _receipt(db: sqlite3.Connection, row: sqlite3.Row, others: Mapping[str, Any], *, trained: bool = True) -> Receipt:
    """Store the receipt of a ticket with it, and the receipt's digest in the ledger."""
    statement = parsed(row["statement"]) if row["statement"] else {}
    if not isinstance(statement, dict):
        raise CorruptError(f"what came with the answer to ticket {row['id']} was altered: restore a backup.")
    model = db.execute("SELECT exact, fingerprint, seconds FROM model").fetchone()
    meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
    receipt = Receipt(
        ticket=row["id"],
        client=row["client"],
        level=row["level"],
        commitment=row["commitment"],
        exact=model is None or bool(model["exact"]),
        settled=now(),
        context={
            "server_config": meta["config"],
            "server_initial": meta["initial"],
            "server_model": meta.get("model"),
            "client_config": statement.get("config"),
            "client_initial": statement.get("initial"),
            "client_key": statement.get("key"),
            "codebook": statement.get("codebook") or None,
        },
        before=parsed(row["before"]),
        after=commitments(db, row["client"]),
        fingerprint={
            "client": statement.get("fingerprint", {}),
            "server": parsed(model["fingerprint"]) if model else {},
        },
        others=others,
        server_seconds=model["seconds"] if model and trained else 0.0,
        ledger={},
    )
    entry = ledger.append(db, {"kind": "settled", "ticket": row["id"], "receipt": receipt_digest(receipt)})
    final = Receipt.from_dict({**receipt.to_dict(), "ledger": entry})
    db.execute(
        "UPDATE tickets SET state = 'settled', statement = NULL, receipt = ?, settled = ? WHERE id = ?",
        (json.dumps(final.to_dict()), final.settled, row["id"]),
    )
    return final


def receipt_digest(receipt: Receipt) -> str:
    """Return the digest of a receipt, without its place in the ledger and what the client added for itself."""
    values = receipt.to_dict()
    del values["ledger"], values["privacy"]
    return digest("receipt", json.dumps(values, sort_keys=True))
