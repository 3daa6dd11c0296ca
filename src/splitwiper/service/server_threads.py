"""Threads that answer calls, each with its own server, so that slow work on one does not block another.

A `Server` is used by one thread at a time. Each thread has its own, over the same folder: the database's transactions
isolate them, as they isolate processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from splitwiper.server import Server

_T = TypeVar("_T")


class ServerThread:
    """A server, and the single thread that uses it."""

    def __init__(self, make: Callable[[], Server], name: str) -> None:
        self._make = make
        self._server: Server | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, work: Callable[[Server], _T]) -> _T:
        """Run a function on this thread, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)

    def _run(self, work: Callable[[Server], _T]) -> _T:
        if self._server is None:
            self._server = self._make()
        return work(self._server)

    def close(self) -> None:
        """Finish the work in progress, and accept no more."""
        self._thread.shutdown(wait=True)
        if self._server is not None:
            self._server.store.database.close()
