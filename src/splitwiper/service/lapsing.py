"""Lapsed requests: if a client stays silent for too long after its request, its shard is erased, which settles it.

A request withdraws the model from everybody until the client sends its shard without the rows. A client that never does
so would keep it withdrawn indefinitely. Erasing the whole shard is more than the client asked for, but honours the
request; it can send its surviving rows later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime

from splitwiper.service.expiry import Expiry
from splitwiper.store import ServerStore, exclusion

_HOUR = 3600.0
_log = logging.getLogger("splitwiper.service")


class Lapses:
    """Finds requests that nobody follows up.

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
        over = {
            ticket.client
            for ticket in waiting
            if self._terms.is_over(ticket.id, datetime.fromisoformat(ticket.received).timestamp() + self._hours * _HOUR)
        }
        for client in sorted(over):
            _log.warning("client %r asked to forget and sent nothing since: its shard is erased", client)
            before(client)
            exclusion.lapse(store, client, file=held.get(client, ""))
