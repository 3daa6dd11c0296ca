"""The relay: sealed messages between clients, which the server forwards and cannot read.

A topic's sequence numbers are used in order, each once.
In one process a new topic replaces earlier ones: what clients agreed on earlier is of no use any more. Over a
network every certificate holder can post, so nobody's messages erase another's, and each sender has a quota.
There, a message is erased for the holder of a proof whose digest is the message's first bytes, which only the group can
derive: the sequence number stays used, with an empty message.
"""

from __future__ import annotations

import re
import sqlite3

from splitwiper.errors import CorruptError, DataError, QuotaError
from splitwiper.store.database import Database
from splitwiper.wire import Posted

# existing stores and sites know the relay as "board", in this table and in the URL /v1/board
SCHEMA = """
CREATE TABLE board (
  topic TEXT NOT NULL, place INTEGER NOT NULL, sender TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (topic, place));
"""
LARGEST = 1 << 20
"""Largest size of a message, in bytes."""
SHARE = 16 << 20
"""Bytes that one client may have on a relay shared with clients it may not know."""
_LEAST = 4096
"""Smallest size that a message counts for, in bytes."""


class Relay:
    """The messages in the server's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def post(self, client: str, topic: str, place: int, body: bytes, *, shared: bool = False) -> None:
        """Post a sealed message at the next unused sequence number. Repeating it changes nothing.

        If the relay is ``shared`` with clients outside the group, a new topic erases nothing, and quotas apply.
        """
        if len(body) > LARGEST or len(topic) > 100:
            raise DataError(f"a message of {len(body)} bytes is beyond the limit of {LARGEST}.")
        with self._database.change() as db:
            taken = db.execute(
                "SELECT sender, body FROM board WHERE topic = ? AND place = ?", (topic, place)
            ).fetchone()
            if taken is not None:
                if (taken["sender"], taken["body"]) != (client, body):
                    raise DataError(
                        f"message {place} of {topic!r} is already there, from {taken['sender']!r}: read it, and post "
                        "at the next free number."
                    )
                return
            (next_place,) = db.execute("SELECT count(*) FROM board WHERE topic = ?", (topic,)).fetchone()
            if place != next_place:
                raise DataError(f"message {place} of {topic!r} comes after {next_place}, which is still empty.")
            if shared:
                _check_share(db, client, len(body))
            elif place == 0:
                db.execute("DELETE FROM board")
            db.execute("INSERT INTO board VALUES (?, ?, ?, ?)", (topic, place, client, body))

    def erase(self, topic: str, lock: bytes = b"") -> None:
        """Erase the messages of a topic that begin with a lock, or all; their sequence numbers stay used."""
        with self._database.change() as db:
            db.execute(
                "UPDATE board SET body = x'' WHERE topic = ? AND substr(body, 1, ?) = ?", (topic, len(lock), lock)
            )

    def topics(self) -> frozenset[str]:
        """Return all topics with messages that are not erased."""
        rows = self._database.read("SELECT DISTINCT topic FROM board WHERE body != x''")
        return frozenset(str(row["topic"]) for row in rows)

    def topic(self) -> str:
        """Return the current topic, or the latest one; empty if there was none."""
        row = self._database.one("SELECT topic FROM board ORDER BY rowid DESC LIMIT 1")
        return str(row["topic"]) if row else ""

    def posted(self, topic: str, since: int = 0) -> tuple[Posted, ...]:
        """Return the messages of a topic, from a sequence number on; erased ones are empty."""
        rows = self._database.read("SELECT * FROM board WHERE topic = ? AND place >= ? ORDER BY place", (topic, since))
        return tuple(Posted(row["place"], row["sender"], row["body"]) for row in rows)


def _check_share(db: sqlite3.Connection, client: str, size: int) -> None:
    """Refuse a message for which its sender has no room left; short ones count too, for their entries."""
    (used,) = db.execute(
        "SELECT coalesce(sum(max(length(body), ?)), 0) FROM board WHERE sender = ?", (_LEAST, client)
    ).fetchone()
    if used + max(size, _LEAST) > SHARE:
        raise QuotaError(
            f"client {client!r} has {used} bytes of messages on the relay, of at most {SHARE}: with larger values of "
            "masking.add, masking.finish and masking.most an agreement takes fewer messages."
        )


def version_of(topic: str) -> int:
    """Return the codebook version that a topic is about; 0 for no topic."""
    version = topic.rpartition("/")[2]
    if topic and not re.fullmatch(r"[0-9]{1,15}", version):
        raise CorruptError(f"the relay has the topic {topic[:80]!r}, which clients never use: restore a backup.")
    return int(version or 0)
