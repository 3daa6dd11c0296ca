"""Fair turns: one piece of work at a time, clients in turn, so that no client's long queue delays the others."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from splitwiper.errors import QuotaError


class Turns:
    """A queue for each client, served round-robin. Used by the event loop's thread alone.

    Args:
        most: rows that one client may have waiting or in work.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: Counter[str] = Counter()
        self._taken = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By client; the first client has the next turn."""

    def check(self, client: str, rows: int = 1) -> None:
        """Refuse a client that has too much waiting already.

        Raises:
            QuotaError: it has.
        """
        if self._rows[client] + rows > self._most:
            raise QuotaError(
                f"{client!r} has {self._rows[client]:,} rows of predictions waiting here, and may have {self._most:,}. "
                "Wait for some of the answers before asking for more."
            )

    @contextmanager
    def queued(self, client: str, rows: int) -> Iterator[None]:
        """Count rows of a client until they are answered.

        Raises:
            QuotaError: it has too many waiting already.
        """
        self.check(client, rows)
        self._rows[client] += rows
        try:
            yield
        finally:
            self._rows[client] -= rows
            if not self._rows[client]:
                del self._rows[client]

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a client's turn, and have it."""
        if self._taken:
            await self._wait(client)
        self._taken = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, client: str) -> None:
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # the turn came just then
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give the turn to the next client that waits."""
        while self._waiting:
            client = next(iter(self._waiting))
            queue = self._waiting.pop(client)
            while queue and queue[0].done():  # who was waiting is gone
                queue.popleft()
            if queue:
                queue.popleft().set_result(None)
                if queue:
                    self._waiting[client] = queue  # behind all others
                return
        self._taken = False
