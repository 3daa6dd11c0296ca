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

_Result = TypeVar("_Result")


class ServerThread:
    """A server, and the single thread that uses it."""

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, work: Callable[[Server], _Result]) -> _Result:
        """Run a function on this thread, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._server)

    def close(self) -> None:
        """Finish the work in progress, and accept no more."""
        self._thread.shutdown(wait=True)
        self._server.store.database.close()
