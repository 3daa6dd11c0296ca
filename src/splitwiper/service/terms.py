"""How long what was begun and not finished is kept.

The clock on the wall can be set, so it is asked once, about what an earlier process left. From then on, and for all
that this process begins, time is taken from the clock that nobody sets.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_HOUR = 3600.0


class Terms:
    """Terms of equal length, by the name of what they are of.

    Args:
        hours: their length.
        clock: one that nobody sets.
    """

    def __init__(self, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = hours * _HOUR, clock
        self._ends: dict[str, float] = {}

    def begin(self, name: str) -> float:
        """Begin a term, or begin it again; its end on the wall's clock, to be written down for a later process."""
        self._ends[name] = self._clock() + self._seconds
        return time.time() + self._seconds

    def is_over(self, name: str, written: float) -> bool:
        """Whether a term has ended.

        Args:
            name: of what.
            written: its end as it was written down, perhaps by an earlier process.
        """
        now = self._clock()
        if name not in self._ends:
            self._ends[name] = now + min(written - time.time(), self._seconds)
        return self._ends[name] < now

    def keep(self, names: set[str]) -> None:
        """Forget all terms but these."""
        self._ends = {name: end for name, end in self._ends.items() if name in names}
