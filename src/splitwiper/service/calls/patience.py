"""Try again while a server cannot be reached, for a while, and say so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from splitwiper.errors import SplitWiperError, UnreachableError

_T = TypeVar("_T")
_FIRST, _LONGEST = 0.5, 30.0
"""Seconds to wait before the second attempt, and between two attempts at most."""


class Patience:
    """Repeats what fails because of the server, until the time is up.

    Args:
        seconds: how long, all attempts and waits together.
        told: hears what is wrong, once for each new trouble.
        troubles: errors after which another attempt may succeed.
        longest: seconds to wait between two attempts at most.
    """

    def __init__(
        self,
        seconds: float,
        told: Callable[[str], None] | None = None,
        troubles: tuple[type[SplitWiperError], ...] = (UnreachableError,),
        longest: float = _LONGEST,
    ) -> None:
        self._end, self._told, self._troubles = time.monotonic() + seconds, told, troubles
        self._longest = longest

    def __call__(self, attempt: Callable[[], _T]) -> _T:
        """Return what the attempt returns once it succeeds.

        Raises:
            SplitWiperError: what the last attempt raised, when the time is up.
        """
        wait, last = _FIRST, ""
        while True:
            try:
                return attempt()
            except self._troubles as problem:
                if time.monotonic() + wait > self._end:
                    raise
                if self._told and str(problem) != last:
                    last = str(problem)
                    self._told(last)
                time.sleep(wait)
                wait = min(2 * wait, self._longest)
