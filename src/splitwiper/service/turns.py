"""Fair turns: one piece of work at a time, clients in turn, so that no client's long queue delays the others.

Receiving bodies takes time as well. So a client has few calls in progress. Its other connections are not read
meanwhile, so that only this client has to wait. And while others are being served, large bodies are read at a limited
rate: decrypting them as fast as they arrive would keep the event loop and a processor busy.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from splitwiper.errors import QuotaError

_ACTIVE = 1.0
"""Seconds for which a client counts as being served after a turn."""
_RATE = 32 << 20
"""Bytes a second at which one body is read while others are being served."""
_SMALL = 1 << 18
"""Bytes of a body that are read without a pause."""


class Places:
    """Limits how many calls of one client are in progress. Its other calls wait, and no other client has to.

    Args:
        at_once: how many are in progress.
        waiting: how many may wait.
        what: what they are, for messages.
    """

    def __init__(self, at_once: int, waiting: int, what: str) -> None:
        self._waiting, self._what = waiting, what
        self._free: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(at_once))
        self._outside: Counter[str] = Counter()

    @asynccontextmanager
    async def taken(self, client: str) -> AsyncIterator[None]:
        """Wait until a client's next call may begin, and count it as in progress meanwhile.

        Raises:
            QuotaError: the client has too many waiting already.
        """
        if self._outside[client] >= self._waiting:
            raise QuotaError(
                f"{client!r} has {self._waiting:,} {self._what} waiting here, and may not have more. "
                "Wait for some of the answers before asking for more."
            )
        self._outside[client] += 1
        try:
            await self._free[client].acquire()
        finally:
            self._outside[client] -= 1
        try:
            yield
        finally:
            self._free[client].release()


class Turns:
    """A queue for each client, served round-robin. Used only by the event loop's thread."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By client, in order of turns; the first client is next."""
        self._served: OrderedDict[str, float] = OrderedDict()
        """When each client's last turn ended; the latest is last."""

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a client's turn, and hold it."""
        if self._taken:
            await self._wait(client)
        self._taken = True
        try:
            yield
        finally:
            self._served[client] = asyncio.get_running_loop().time()
            self._served.move_to_end(client)
            self._pass_on()

    def pause(self, client: str, piece: int, body: int) -> float:
        """Return the seconds to wait before more of a client's body is read: 0 if no other client is being served.

        Args:
            client: who sends the body.
            piece: the bytes just read.
            body: the bytes read so far.
        """
        active_since = asyncio.get_running_loop().time() - _ACTIVE
        while self._served and next(iter(self._served.values())) < active_since:
            self._served.popitem(last=False)
        others = len(self._served) > (client in self._served)
        return piece / _RATE if others and body > _SMALL else 0.0

    async def _wait(self, client: str) -> None:
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # the turn had just been given to it
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give the turn to the next waiting client."""
        while self._waiting:
            client = next(iter(self._waiting))
            queue = self._waiting.pop(client)
            while queue and queue[0].done():  # cancelled while waiting
                queue.popleft()
            if queue:
                queue.popleft().set_result(None)
                if queue:
                    self._waiting[client] = queue  # behind all others
                return
        self._taken = False
