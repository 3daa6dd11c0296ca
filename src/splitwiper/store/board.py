"""The board: sealed messages between clients, which the server relays and cannot read.

Functions on the server's book, like tickets and ledger. A topic's places are filled one after another, each once. In
one process a new topic replaces those before it: what clients agreed on earlier is of no use any more. Over a network
whoever has a certificate can speak, so nobody's words erase another's there, and each has a share of the board. A
message is erased there for who shows what its first bytes are a digest of, which only the group can: the place stays
taken, and is empty.
"""

from __future__ import annotations

import re
import sqlite3

from splitwiper.errors import CorruptError, DataError, QuotaError
from splitwiper.store.book import Book
from splitwiper.wire import Posted

SCHEMA = """
CREATE TABLE board (
  topic TEXT NOT NULL, place INTEGER NOT NULL, sender TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (topic, place));
"""
LARGEST = 1 << 20
"""Bytes of a message."""
SHARE = 16 << 20
"""Bytes that one client may have on a board it shares with clients it may not know."""
_LEAST = 4096
"""What a message counts for at least."""


def post(db: sqlite3.Connection, client: str, topic: str, place: int, body: bytes, *, shared: bool = False) -> None:
    """Put a message at a place. Repeating it changes nothing.

    Args:
        db: the server's book, in a change.
        client: who speaks.
        topic: of the talk.
        place: the next one that is empty.
        body: the sealed message.
        shared: others may speak here who are none of the group: a new topic erases nothing, and shares are limited.

    Raises:
        DataError: the message is too large, or the place is another one's.
        QuotaError: the client has said more than its share.
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
    if shared:
        _check_share(db, client, len(body))
    elif place == 0:
        db.execute("DELETE FROM board")
    db.execute("INSERT INTO board VALUES (?, ?, ?, ?)", (topic, place, client, body))


def _check_share(db: sqlite3.Connection, client: str, size: int) -> None:
    (said,) = db.execute(
        "SELECT coalesce(sum(max(length(body), ?)), 0) FROM board WHERE sender = ?", (_LEAST, client)
    ).fetchone()
    if said + max(size, _LEAST) > SHARE:
        raise QuotaError(
            f"client {client!r} has said {said} bytes of the {SHARE} that it may have on the board: with larger values "
            "of masking.add, masking.finish and masking.most an agreement takes fewer words."
        )


def erase(db: sqlite3.Connection, topic: str, lock: bytes = b"") -> None:
    """Erase the messages of a topic that begin with a lock, or all; their places stay taken."""
    db.execute("UPDATE board SET body = x'' WHERE topic = ? AND substr(body, 1, ?) = ?", (topic, len(lock), lock))


def topics(book: Book) -> frozenset[str]:
    """All that was talked about, and not erased."""
    return frozenset(str(row["topic"]) for row in book.read("SELECT DISTINCT topic FROM board WHERE body != x''"))


def topic(book: Book) -> str:
    """What is being talked about, or was last; empty where nobody ever spoke."""
    row = book.one("SELECT topic FROM board ORDER BY rowid DESC LIMIT 1")
    return str(row["topic"]) if row else ""


def version_of(topic: str) -> int:
    """Return the version of the codebook that a topic is about; 0 for no topic.

    Raises:
        CorruptError: the topic is about something else.
    """
    version = topic.rpartition("/")[2]
    if topic and not re.fullmatch(r"[0-9]{1,15}", version):
        raise CorruptError(f"the board has the topic {topic[:80]!r}, which clients never talk about: restore a backup.")
    return int(version or 0)


def posted(book: Book, topic: str, since: int = 0) -> tuple[Posted, ...]:
    """The messages of a topic, from a place on; those that were erased are empty."""
    rows = book.read("SELECT * FROM board WHERE topic = ? AND place >= ? ORDER BY place", (topic, since))
    return tuple(Posted(row["place"], row["sender"], row["body"]) for row in rows)
