"""Which negotiations on the relay are kept, and for how long.

The server cannot read them, so clients report when one has ended. A negotiation that led to an agreement is kept for
clients that join later; of an abandoned one, only the last message is kept, which says so. A negotiation that nobody
ends is erased once nobody has written or read in it for as long as an unfinished upload is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from splitwiper.service.records.expiry import Expiry
from splitwiper.store import ServerStore
from splitwiper.store.database import Database

SCHEMA = """
CREATE TABLE talks (topic TEXT PRIMARY KEY, expires REAL NOT NULL, ended INTEGER NOT NULL DEFAULT 0);
"""


class Negotiations:
    """All negotiations on the relay. One without activity is kept for some hours, by a monotonic clock."""

    def __init__(
        self, database: Database, store: ServerStore, hours: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database, self._terms, self._rarely = database, Expiry(hours, clock), 1800.0 * hours
        self._written: dict[str, float] = {}
        """Expiry times as stored: up to half a term late, so that not every message causes a write to the database."""
        if database.one("SELECT 1 FROM sqlite_master WHERE name = 'talks'") is None:
            with database.change() as db:  # from an older server, which was not notified of ends: keep everything
                db.execute(SCHEMA)
                db.executemany("INSERT INTO talks VALUES (?, 0, 1)", [(topic,) for topic in store.relay.topics()])

    def spoken(self, topic: str) -> None:
        """Note that a client wrote in a negotiation."""
        expires = self._terms.begin(topic) + self._rarely
        # a database write for every message would make the negotiation as slow as the disk
        if abs(expires - self._written.get(topic, 0.0)) < self._rarely:
            return
        with self._database.change() as db:
            db.execute(
                "INSERT INTO talks (topic, expires) VALUES (?, ?) "
                "ON CONFLICT (topic) DO UPDATE SET expires = excluded.expires",
                (topic, expires),
            )
        self._written[topic] = expires

    def listened(self, topic: str) -> None:
        """Note that a client read a negotiation: if it is in progress, the reader is waiting for it."""
        if topic in self._written:
            self.spoken(topic)

    def ended(self, topic: str) -> None:
        """Note that a negotiation has ended: its remaining messages are kept."""
        self.spoken(topic)
        with self._database.change() as db:
            db.execute("UPDATE talks SET ended = 1 WHERE topic = ?", (topic,))

    def expire(self, store: ServerStore) -> None:
        """Erase negotiations that nobody continues."""
        known = {row["topic"] for row in self._database.read("SELECT topic FROM talks")}
        for topic in store.relay.topics() - known:  # the server was killed before it noted the first message
            self.spoken(topic)
        rows = self._database.read("SELECT topic, expires FROM talks WHERE NOT ended")
        self._written = {row["topic"]: row["expires"] for row in rows}
        for topic in self._terms.over(self._written):
            # the messages first: if the server is killed in between, the next one erases them again
            store.relay.erase(topic)
            with self._database.change() as db:
                db.execute("DELETE FROM talks WHERE topic = ?", (topic,))
            del self._written[topic]
