"""Expiry of what was begun and not finished: uploads, negotiations, and requests that their clients do not follow up.

The wall clock can be set, so it is read only once, for what an earlier process left. From then on, and for everything
begun by this process, time comes from the monotonic clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime

from splitwiper.store import ServerStore, exclusion

_HOUR = 3600.0
_log = logging.getLogger("splitwiper.service")


class Expiry:
    """Terms of so many hours, by name, measured by a monotonic clock."""

    def __init__(self, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = hours * _HOUR, clock
        self._ends: dict[str, float] = {}

    def begin(self, name: str) -> float:
        """Start or restart a term, and return its end by the wall clock, to be stored for a later process."""
        self._ends[name] = self._clock() + self._seconds
        return time.time() + self._seconds

    def over(self, stored: Mapping[str, float]) -> set[str]:
        """Return the names of the terms that have ended, and forget all terms that are not among those stored.

        Args:
            stored: the end of each term by the wall clock, as it was stored, perhaps by an earlier process.
        """
        now, ends = self._clock(), dict[str, float]()
        for name, end in stored.items():
            # an earlier process's term: trust its stored end, but never for longer than a whole term
            ends[name] = self._ends.get(name, now + min(end - time.time(), self._seconds))
        self._ends = ends
        return {name for name, end in ends.items() if end < now}


class Lapses:
    """Finds requests that nobody follows up: the client's shard is erased, which settles them.

    A request withdraws the model from everybody until the client sends its shard without the rows. A client that never
    does so would keep it withdrawn indefinitely. So it may be silent for some hours. Erasing the whole shard is more
    than the client asked for, but honours the request; it can send its surviving rows later.
    """

    def __init__(self, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._hours, self._terms = hours, Expiry(hours, clock)

    def expire(self, store: ServerStore, before: Callable[[str], None] = lambda _: None) -> None:
        """Erase the shards of clients that asked to forget and were silent for too long.

        ``before`` is called with each client's name before its shard is erased.
        """
        # read before the tickets: a shard that arrives in between may answer one of them, and must not be erased
        held = {shard.client: shard.file for shard in store.shards()}
        clients, ends = dict[str, str](), dict[str, float]()
        for ticket in store.waiting():
            if ticket.state == "accepted":
                clients[ticket.id] = ticket.client
                ends[ticket.id] = datetime.fromisoformat(ticket.received).timestamp() + self._hours * _HOUR
        for client in sorted({clients[ticket] for ticket in self._terms.over(ends)}):
            _log.warning("client %r asked to forget and sent nothing since: its shard is erased", client)
            before(client)
            exclusion.lapse(store, client, file=held.get(client, ""))
