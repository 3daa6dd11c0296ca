"""Which talks on the board are kept, and for how long.

The server cannot read them, so clients report when one has ended. A talk that led to an agreement is kept for clients
that come later; of an abandoned one, only the last message is kept, which says so. A talk that nobody ends is erased
once nobody has written or read in it for as long as an unfinished upload is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from splitwiper.service.terms import Terms
from splitwiper.store import ServerTree
from splitwiper.store.book import Book

SCHEMA = """
CREATE TABLE talks (topic TEXT PRIMARY KEY, expires REAL NOT NULL, ended INTEGER NOT NULL DEFAULT 0);
"""


class Talks:
    """All talks on the board.

    Args:
        book: the service's.
        tree: the server's, whose board it is.
        hours: how long a talk without activity is kept.
        clock: a monotonic clock.
    """

    def __init__(self, book: Book, tree: ServerTree, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._book, self._terms, self._rarely = book, Terms(hours, clock), 1800.0 * hours
        self._written: dict[str, float] = {}
        """Expiry times as the book has them: half a term late, so that not every message has to be written down."""
        if book.one("SELECT 1 FROM sqlite_master WHERE name = 'talks'") is None:
            with book.change() as db:  # an older server's: nobody told it what had ended, so all is kept
                db.execute(SCHEMA)
                db.executemany("INSERT INTO talks VALUES (?, 0, 1)", [(topic,) for topic in tree.topics()])

    def spoken(self, topic: str) -> None:
        """Note that somebody wrote in a talk."""
        expires = self._terms.begin(topic) + self._rarely
        if abs(expires - self._written.get(topic, 0.0)) < self._rarely:
            return
        with self._book.change() as db:
            db.execute(
                "INSERT INTO talks (topic, expires) VALUES (?, ?) "
                "ON CONFLICT (topic) DO UPDATE SET expires = excluded.expires",
                (topic, expires),
            )
        self._written[topic] = expires

    def listened(self, topic: str) -> None:
        """Note that somebody read a talk: if there is one, somebody is waiting for it."""
        if topic in self._written:
            self.spoken(topic)

    def ended(self, topic: str) -> None:
        """Note that a talk has ended: its remaining messages are kept."""
        self.spoken(topic)
        with self._book.change() as db:
            db.execute("UPDATE talks SET ended = 1 WHERE topic = ?", (topic,))

    def expire(self, tree: ServerTree) -> None:
        """Erase talks that nobody continues."""
        known = {row["topic"] for row in self._book.read("SELECT topic FROM talks")}
        for topic in tree.topics() - known:  # the server was killed before it wrote down that somebody spoke
            self.spoken(topic)
        rows = self._book.read("SELECT topic, expires FROM talks WHERE NOT ended")
        over = {row["topic"] for row in rows if self._terms.is_over(row["topic"], row["expires"])}
        for topic in over:
            tree.erase_talk(topic)
            with self._book.change() as db:
                db.execute("DELETE FROM talks WHERE topic = ?", (topic,))
        self._written = {row["topic"]: row["expires"] for row in rows if row["topic"] not in over}
        self._terms.keep(set(self._written))
