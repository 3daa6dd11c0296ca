"""Ways to alter certificates and ledgers."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from splitwiper.service.certificate import Envelope, SigningKey
from splitwiper.service.certificate.canonical import dumps
from store.tampering import tampered

Place = tuple[str | int, ...]


def statement_of(certificate: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.b64decode(certificate["payload"]))
    return found


def with_payload(certificate: dict[str, Any], payload: bytes) -> dict[str, Any]:
    """The certificate with another payload under the old signatures."""
    return {**certificate, "payload": base64.b64encode(payload).decode()}


def signed(statement: Any, key: SigningKey) -> dict[str, Any]:
    """A statement that a server signs although it should not."""
    return Envelope.sign(dumps(statement), [key]).to_dict()


def leaves(value: Any, place: Place = ()) -> Iterator[Place]:
    """The places of all values that hold no others."""
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*place, key))
    else:
        yield place


def branches(value: Any, place: Place = ()) -> Iterator[Place]:
    """The places of all objects."""
    if isinstance(value, dict):
        yield place
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from branches(inner, (*place, key))


def changed(value: Any, place: Place, change: Callable[[Any], Any]) -> Any:
    """A copy with one place changed."""
    out = copy.deepcopy(value)
    if not place:
        return change(out)
    inner = out
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = change(inner[place[-1]])
    return out


def flip(value: Any) -> Any:
    """Another value of the same kind, as like the first as can be."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value[:-1]}{'1' if value.endswith('0') else '0'}" if value else "0"
    return "0" * 64 if value is None else [None]


def rewrite(run: Path, change: Callable[[list[dict[str, Any]]], None], *, chain: bool = True) -> None:
    """Alter a ledger, as its owner can; with the chain made anew, unless not."""
    with tampered(run / "server" / "server.db") as db:
        db.row_factory = sqlite3.Row
        rows = [dict(row) for row in db.execute("SELECT * FROM ledger ORDER BY seq")]
        change(rows)
        prev = "0" * 64
        for number, row in enumerate(rows if chain else [], start=1):
            row.update(seq=number, prev=prev)
            prev = row["hash"] = hashlib.sha256(f"{number}\n{prev}\n{row['body']}".encode()).hexdigest()
        db.execute("DELETE FROM ledger")
        db.executemany("INSERT INTO ledger VALUES (:seq, :prev, :body, :hash)", rows)
