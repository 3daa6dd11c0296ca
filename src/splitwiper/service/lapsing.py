"""Requests whose client is silent: after a time its shard is erased, which is more than it asked for, and settles them.

A request withdraws the model from everybody until the client sends its shard without the rows. A client that never does
would keep it withdrawn for ever. Erasing its shard honours the request; it can send its surviving rows later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime

from splitwiper.service.terms import Terms
from splitwiper.store import ServerTree, exclusion

_HOUR = 3600.0
_log = logging.getLogger("splitwiper.service")


class Lapses:
    """Looks for requests that nobody follows up.

    Args:
        hours: how long a client may be silent.
        clock: one that nobody sets.
    """

    def __init__(self, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._hours, self._terms = hours, Terms(hours, clock)

    def expire(self, tree: ServerTree, before: Callable[[str], None] = lambda _: None) -> None:
        """Erase the shards of clients that asked and were silent for too long.

        Args:
            tree: the server's.
            before: told of each client first.
        """
        held = {shard.client: shard.file for shard in tree.shards()}  # before the tickets that a newer one may answer
        waiting = [ticket for ticket in tree.waiting() if ticket.state == "accepted"]
        self._terms.keep({ticket.id for ticket in waiting})
        over = {
            ticket.client
            for ticket in waiting
            if self._terms.is_over(ticket.id, datetime.fromisoformat(ticket.received).timestamp() + self._hours * _HOUR)
        }
        for client in sorted(over):
            _log.warning("client %r asked to forget and sent nothing since: its shard is erased", client)
            before(client)
            exclusion.lapse(tree, client, file=held.get(client, ""))
