"""Limits on a client's shards that answer no request: per day, and while an auditor waits or reads."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from splitwiper.errors import QuotaError
from splitwiper.service.access import RateLimiter

_DAY = 24 * 3600.0
_AUDIT = 4 * 3600.0
"""Seconds for which an audit limits clients' shards, from its first call on."""


class Pacing:
    """Counts shards that answer no request, in memory.

    Args:
        uploads: how many a client may send in a day.
        shards: how many a client may send while an auditor waits or reads.
        clock: a monotonic clock.
    """

    def __init__(self, uploads: int, shards: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._day, self._uploads, self._shards = RateLimiter(uploads / _DAY, uploads, clock), uploads, shards
        self._clock, self._audit_ends = clock, 0.0
        self._meanwhile: Counter[str] = Counter()

    def check(self, client: str) -> None:
        """Refuse a shard that exceeds a limit.

        Raises:
            QuotaError: the client has sent too many.
        """
        if not self._day.has(client):
            raise QuotaError(
                f"client {client!r} has sent {self._uploads} shards within a day, and no more are accepted: send "
                "rows together, and again later. Requests to forget are followed up all the same."
            )
        if self._clock() < self._audit_ends and self._meanwhile[client] >= self._shards:
            raise QuotaError(
                f"client {client!r} has sent {self._shards} shards while an auditor reads, and no more are accepted "
                "until the audit has ended: send it again then. Requests to forget are followed up all the same."
            )

    def count(self, client: str) -> None:
        """Count an accepted shard."""
        self._day.take(client)
        self._meanwhile[client] += 1

    def audit_calls(self) -> None:
        """Note that an auditor is reading, or waits to read; later calls of the same audit do not extend its time."""
        if self._clock() >= self._audit_ends:
            self._audit_ends = self._clock() + _AUDIT
            self._meanwhile.clear()

    def audit_ends(self) -> None:
        """Note that an audit has ended."""
        self._audit_ends = self._clock()
