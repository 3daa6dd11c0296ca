"""Retry what failed because of the server or the network, after waits that grow."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import TypeVar

from splitwiper.errors import UnreachableError

_T = TypeVar("_T")
_jitter = random.Random()  # noqa: S311  of its own: the caller's generator is left alone


class Patience:
    """Retries an attempt until it succeeds, or the time or the number of attempts is used up.

    Args:
        seconds: the time for all attempts and waits together.
        on_retry: called with the message of each new error.
        troubles: errors after which another attempt may succeed.
        longest: the longest wait, in seconds, not counting its random part.
        first: the wait before the second attempt, likewise. It doubles from then on.
        tries: the largest number of attempts.
    """

    def __init__(
        self,
        seconds: float = math.inf,
        on_retry: Callable[[str], None] | None = None,
        troubles: tuple[type[Exception], ...] = (UnreachableError,),
        *,
        longest: float = 30.0,
        first: float = 0.5,
        tries: float = math.inf,
    ) -> None:
        self._end, self._on_retry, self._troubles = time.monotonic() + seconds, on_retry, troubles
        self._longest, self._first, self._tries = longest, first, tries

    def __call__(self, attempt: Callable[[], _T], *, hopeless: Callable[[Exception], bool] = lambda _: False) -> _T:
        """Return the attempt's result once it succeeds; raise its last error.

        ``hopeless`` returns whether another attempt would fail like the one with this error.
        """
        wait, last, attempts = self._first, "", 1
        while True:
            try:
                return attempt()
            except self._troubles as problem:
                if attempts >= self._tries or time.monotonic() + wait > self._end or hopeless(problem):
                    raise
                if self._on_retry and str(problem) != last:
                    last = str(problem)
                    self._on_retry(last)
            # clients that a server turned away together must not come back together
            time.sleep(wait * _jitter.uniform(1.0, 1.5))
            wait, attempts = min(2 * wait, self._longest), attempts + 1
