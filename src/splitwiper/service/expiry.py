"""Expiry of what was begun and not finished: uploads, negotiations, and requests that their clients do not follow up.

The wall clock can be set, so it is read only once, for what an earlier process left. From then on, and for everything
begun by this process, time comes from the monotonic clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime

from splitwiper.store import ServerStore, exclusion

_HOUR = 3600.0
_log = logging.getLogger("splitwiper.service")


class Expiry:
    """Terms of equal length, by name.

    Args:
        hours: the length of a term.
        clock: a monotonic clock.
    """

    def __init__(self, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = hours * _HOUR, clock
        self._ends: dict[str, float] = {}

    def begin(self, name: str) -> float:
        """Start or restart a term, and return its end by the wall clock, to be stored for a later process."""
        self._ends[name] = self._clock() + self._seconds
        return time.time() + self._seconds

    def is_over(self, name: str, written: float) -> bool:
        """Return whether a term has ended.

        Args:
            name: the term's name.
            written: its end as it was stored, perhaps by an earlier process.
        """
        now = self._clock()
        if name not in self._ends:
            # an earlier process's term: trust its stored end, but never for longer than a whole term
            self._ends[name] = now + min(written - time.time(), self._seconds)
        return self._ends[name] < now

    def keep(self, names: set[str]) -> None:
        """Forget all terms except these."""
        self._ends = {name: end for name, end in self._ends.items() if name in names}


class Lapses:
    """Finds requests that nobody follows up: the client's shard is erased, which settles them.

    A request withdraws the model from everybody until the client sends its shard without the rows. A client that never
    does so would keep it withdrawn indefinitely. Erasing the whole shard is more than the client asked for, but honours
    the request; it can send its surviving rows later.

    Args:
        hours: how long a client may be silent.
        clock: a monotonic clock.
    """

    def __init__(self, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._hours, self._terms = hours, Expiry(hours, clock)

    def expire(self, store: ServerStore, before: Callable[[str], None] = lambda _: None) -> None:
        """Erase the shards of clients that asked to forget and were silent for too long.

        Args:
            store: the server's store.
            before: called with each client's name before its shard is erased.
        """
        held = {shard.client: shard.file for shard in store.shards()}  # first: a newer one may answer a ticket
        waiting = [ticket for ticket in store.waiting() if ticket.state == "accepted"]
        self._terms.keep({ticket.id for ticket in waiting})
        over = set[str]()
        for ticket in waiting:
            end = datetime.fromisoformat(ticket.received).timestamp() + self._hours * _HOUR
            if self._terms.is_over(ticket.id, end):
                over.add(ticket.client)
        for client in sorted(over):
            _log.warning("client %r asked to forget and sent nothing since: its shard is erased", client)
            before(client)
            exclusion.lapse(store, client, file=held.get(client, ""))
