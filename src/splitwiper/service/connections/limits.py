"""What one caller may use: calls, memory, shards a day, calls in progress, and turns at the inference thread.

Everything here is counted in memory, by caller.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from splitwiper.errors import QuotaError

_DAY = 24 * 3600.0
_AUDIT = 4 * 3600.0
"""Seconds for which an audit limits clients' shards, from its first call on."""
_ACTIVE = 1.0
"""Seconds for which a client counts as being served after a turn."""
_RATE = 32 << 20
"""Bytes a second at which one body is read while others are being served."""
_SMALL = 1 << 18
"""Bytes of a body that are read without a pause."""


@dataclass
class RateLimiter:
    """A token bucket for each caller: it refills at ``rate`` calls a second and holds at most ``burst``."""

    rate: float
    burst: int
    clock: Callable[[], float] = time.monotonic
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Tokens that were left, and when."""

    def has(self, who: str) -> bool:
        """Return whether a call would be allowed now."""
        return self._left(who) >= 1

    def take(self, who: str) -> None:
        """Count a call; raise `QuotaError` if the caller made too many recently."""
        left = self._left(who)
        if left < 1:
            raise QuotaError(f"{who} calls too often: at most {self.rate:g} times a second. Wait a little, and go on.")
        self._buckets[who] = (left - 1, self.clock())

    def _left(self, who: str) -> float:
        now = self.clock()
        left, then = self._buckets.get(who, (float(self.burst), now))
        # a clock that goes backwards must not take tokens away
        return min(float(self.burst), left + max(0.0, now - then) * self.rate)


class MemoryQuota:
    """Limits the memory that request bodies take.

    No client may hold more than is then left free. A single client therefore gets at most half of the total, and
    however many clients hold their maximum, there is room for the next one.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._held: Counter[str] = Counter()

    @contextmanager
    def keeping(self, client: str) -> Iterator[Reservation]:
        """Count the memory that one call of a client takes, and release it when the call is answered."""
        reservation = Reservation(self, client)
        try:
            yield reservation
        finally:
            self._give(client, reservation.taken)

    def take(self, client: str, size: int) -> None:
        """Count bytes for a client; raise `QuotaError` if it would hold more than is left for others."""
        # its total after this, against what would then be free: that keeps half of the memory for the others
        if self._held[client] + size > self._free - size:
            raise QuotaError(
                f"what {client!r} sends just now takes {self._held[client]:,} bytes of memory, and {self._free:,} are "
                "free for everybody. Wait a little, or send it in smaller parts."
            )
        self._give(client, -size)

    def _give(self, client: str, size: int) -> None:
        self._free += size
        self._held[client] -= size
        if not self._held[client]:
            del self._held[client]


@dataclass
class Reservation:
    """The memory that one call holds."""

    _quota: MemoryQuota
    _client: str
    taken: int = 0

    def take(self, size: int) -> None:
        """Count bytes for this call; raise `QuotaError` if they are not free at the moment."""
        self._quota.take(self._client, size)
        self.taken += size


class Pacing:
    """Limits a client's shards that answer no request: ``uploads`` a day, ``shards`` while an auditor reads."""

    def __init__(self, uploads: int, shards: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._day, self._uploads, self._shards = RateLimiter(uploads / _DAY, uploads, clock), uploads, shards
        self._clock, self._audit_ends = clock, 0.0
        self._meanwhile: Counter[str] = Counter()

    def check(self, client: str) -> None:
        """Refuse a shard that exceeds a limit."""
        if not self._day.has(client):
            raise QuotaError(
                f"client {client!r} has sent {self._uploads} shards within a day, and no more are accepted: send "
                "more rows in one shard, and try again later. Requests to forget are still carried out."
            )
        if self._clock() < self._audit_ends and self._meanwhile[client] >= self._shards:
            raise QuotaError(
                f"client {client!r} has sent {self._shards} shards while an auditor reads, and no more are accepted "
                "until the audit has ended: send it again then. Requests to forget are still carried out."
            )

    def count(self, client: str) -> None:
        """Count an accepted shard."""
        self._day.take(client)
        self._meanwhile[client] += 1

    def audit_calls(self) -> None:
        """Note that an auditor is reading, or waits to read."""
        # later calls of the same audit do not extend its time, or one auditor could hold up shards indefinitely
        if self._clock() >= self._audit_ends:
            self._audit_ends = self._clock() + _AUDIT
            self._meanwhile.clear()

    def audit_ends(self) -> None:
        """Note that an audit has ended."""
        self._audit_ends = self._clock()


class Places:
    """Limits how many calls of one client are in progress. Its other calls wait unread, and no other client has to.

    Args:
        at_once: how many are in progress.
        waiting: how many may wait.
        what: what they are, for messages.
    """

    def __init__(self, at_once: int, waiting: int, what: str) -> None:
        self._most_waiting, self._what = waiting, what
        self._free: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(at_once))
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def taken(self, client: str) -> AsyncIterator[None]:
        """Wait until a client's next call may begin, and count it as in progress; refuse it if too many wait."""
        if self._waiting[client] >= self._most_waiting:
            raise QuotaError(
                f"{client!r} has {self._most_waiting:,} {self._what} waiting here, and may not have more. "
                "Wait for some of the answers before asking for more."
            )
        self._waiting[client] += 1
        try:
            await self._free[client].acquire()
        finally:
            self._waiting[client] -= 1
        try:
            yield
        finally:
            self._free[client].release()


class Turns:
    """Fair turns: one piece of work at a time, clients in turn, so that no client's long queue delays the others.

    Receiving bodies takes time as well: decrypting large ones as fast as they arrive would keep the event loop and a
    processor busy. So they are read at a limited rate while others are being served.
    """

    def __init__(self) -> None:
        self._next = asyncio.Lock()
        self._of_client: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._served: dict[str, float] = {}
        """When the last turn of each client ended, by the event loop's clock."""

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a client's turn, and hold it."""
        # asyncio's locks are first in, first out. A client's own lock lets one of its calls at a time into the common
        # queue, and its next call enters that queue behind all other clients: so clients are served round-robin.
        async with self._of_client[client], self._next:
            try:
                yield
            finally:
                self._served[client] = asyncio.get_running_loop().time()

    def pause(self, client: str, piece: int, body: int) -> float:
        """Return the seconds to wait before more of a client's body is read: 0 if no other client is being served.

        Args:
            client: who sends the body.
            piece: the bytes just read.
            body: the bytes read so far.
        """
        active_since = asyncio.get_running_loop().time() - _ACTIVE
        self._served = {name: ended for name, ended in self._served.items() if ended >= active_since}
        others = self._served.keys() - {client}
        return piece / _RATE if others and body > _SMALL else 0.0
