"""Terms, after which what was begun and not finished expires: uploads, negotiations, and requests.

The wall clock can be set, so it is read only once, for what an earlier process left. From then on, and for everything
begun by this process, time comes from the monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


class Expiry:
    """Terms of so many hours, by name, measured by a monotonic clock."""

    def __init__(self, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = hours * 3600.0, clock
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
