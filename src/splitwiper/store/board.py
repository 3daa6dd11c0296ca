"""The board: sealed messages between clients, which the server relays and cannot read.

Functions on the server's book, like tickets and ledger. A topic's places are filled one after another, each once. A new
topic replaces those before it: what clients agreed on earlier is of no use any more.
"""

from __future__ import annotations

import sqlite3

from splitwiper.errors import DataError
from splitwiper.store.book import Book
from splitwiper.wire import Posted

SCHEMA = """
CREATE TABLE board (
  topic TEXT NOT NULL, place INTEGER NOT NULL, sender TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (topic, place));
"""
LARGEST = 1 << 20
"""Bytes of a message."""


def post(db: sqlite3.Connection, client: str, topic: str, place: int, body: bytes) -> None:
    """Put a message at a place. Repeating it changes nothing.

    Raises:
        DataError: the message is too large, or the place is another one's.
    """
    if len(body) > LARGEST or len(topic) > 100:
        raise DataError(f"a message of {len(body)} bytes is beyond the limit of {LARGEST}.")
    there = db.execute("SELECT sender, body FROM board WHERE topic = ? AND place = ?", (topic, place)).fetchone()
    if there is not None:
        if (there["sender"], there["body"]) != (client, body):
            raise DataError(f"place {place} of {topic!r} is taken by {there['sender']!r}: read on, and speak in turn.")
        return
    (next_place,) = db.execute("SELECT count(*) FROM board WHERE topic = ?", (topic,)).fetchone()
    if place != next_place:
        raise DataError(f"place {place} of {topic!r} comes after {next_place}, which is still empty.")
    if place == 0:
        db.execute("DELETE FROM board")
    db.execute("INSERT INTO board VALUES (?, ?, ?, ?)", (topic, place, client, body))


def topic(book: Book) -> str:
    """What is being talked about, or was last; empty where nobody ever spoke."""
    row = book.one("SELECT topic FROM board LIMIT 1")
    return str(row["topic"]) if row else ""


def posted(book: Book, topic: str, since: int = 0) -> tuple[Posted, ...]:
    """The messages of a topic, from a place on."""
    rows = book.read("SELECT * FROM board WHERE topic = ? AND place >= ? ORDER BY place", (topic, since))
    return tuple(Posted(row["place"], row["sender"], row["body"]) for row in rows)
