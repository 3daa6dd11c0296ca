"""Retry for a while if a server cannot be reached, and report it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from splitwiper.errors import SplitWiperError, UnreachableError

_T = TypeVar("_T")
_FIRST, _LONGEST = 0.5, 30.0
"""Seconds to wait before the second attempt, and the longest wait between two attempts."""


class Patience:
    """Retries what fails because of the server, until the time is up.

    Args:
        seconds: the time for all attempts and waits together.
        told: called with the message of each new error.
        troubles: errors after which another attempt may succeed.
        longest: the longest wait between two attempts, in seconds.
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
        """Return the attempt's result once it succeeds.

        Raises:
            SplitWiperError: the last attempt's error, when the time is up.
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
