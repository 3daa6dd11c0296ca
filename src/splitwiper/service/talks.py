"""Which talks on the board are kept, and for how long.

The server cannot read them, so it is told by clients that one has ended: what was agreed on is kept for those who come
later, and of a talk that was given up the last word alone is, which says so. A talk that nobody ends is erased when
nobody has spoken or listened in it for as long as an unfinished upload is kept.
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
        hours: how long a talk is kept in which nothing happens.
        clock: one that nobody sets.
    """

    def __init__(self, book: Book, tree: ServerTree, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._book, self._terms, self._rarely = book, Terms(hours, clock), 1800.0 * hours
        self._written: dict[str, float] = {}
        """Ends as they are in the book: half a term late, so that they need not be written down every time."""
        if book.one("SELECT 1 FROM sqlite_master WHERE name = 'talks'") is None:
            with book.change() as db:  # an older server's: nobody told it what had ended, so all is kept
                db.execute(SCHEMA)
                db.executemany("INSERT INTO talks VALUES (?, 0, 1)", [(topic,) for topic in tree.topics()])

    def spoken(self, topic: str) -> None:
        """Somebody spoke in a talk."""
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
        """Somebody listened to a talk: where there is one, it is waited for."""
        if topic in self._written:
            self.spoken(topic)

    def ended(self, topic: str) -> None:
        """A talk has ended: what is left of it is kept."""
        self.spoken(topic)
        with self._book.change() as db:
            db.execute("UPDATE talks SET ended = 1 WHERE topic = ?", (topic,))

    def expire(self, tree: ServerTree) -> None:
        """Erase talks that nobody goes on with."""
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
