"""Expiry of what was begun and not finished.

The wall clock can be set, so it is read only once, for what an earlier process left. From then on, and for everything
begun by this process, time comes from the monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_HOUR = 3600.0


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
