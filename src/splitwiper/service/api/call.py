"""The call that a route answers, the threads that answer calls, and the decorators that run a route on one of them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, Request

from splitwiper.errors import NotFoundError
from splitwiper.server import Server
from splitwiper.service.identity import Principal

if TYPE_CHECKING:
    from splitwiper.service.api.app import Service

ABOUT = "splitwiper.about"
"""Key under which a call's scope holds what the call is about, besides the names in its path."""
CALLER = "splitwiper.caller"
"""Key under which a call's scope holds its caller; the middleware has checked who it is, and that it may call."""
_Result = TypeVar("_Result")


class ServerThread:
    """A server, and the single thread that uses it, so that slow work on one thread does not block another.

    Each has its own server over the same folder: the database's transactions isolate them, as they isolate processes.
    """

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


@dataclass(frozen=True)
class Call:
    """A call, and the service that it is for."""

    request: Request
    service: Service

    @property
    def caller(self) -> Principal:
        """The caller's identity."""
        caller: Principal = self.request.scope[CALLER]
        return caller

    @property
    def client(self) -> str:
        """The caller's name."""
        return self.caller.name

    def note(self, **about: object) -> None:
        """Add what the call is about to its log line."""
        self.request.scope.setdefault(ABOUT, {}).update(about)

    def check_ticket(self, server: Server, ticket: str) -> None:
        """Refuse a ticket that is another client's, or nobody's."""
        if all(known.id != ticket for known in server.tickets(self.client)):
            raise NotFoundError(f"there is no ticket {ticket!r} of {self.client!r}.")


async def _call(request: Request) -> Call:
    return Call(request, request.app.state.service)


ApiCall = Annotated[Call, Depends(_call)]
"""Type of a route's parameter that receives the call."""


def queries(answer: Callable[..., _Result]) -> Callable[..., Awaitable[_Result]]:
    """Turn a function of a `Server` and a call into a route that runs on the thread for short queries."""
    return _route(answer, lambda service: service.queries)


def ingest(answer: Callable[..., _Result]) -> Callable[..., Awaitable[_Result]]:
    """Turn such a function into a route that runs on the thread that accepts shards, so that none is half accepted."""
    return _route(answer, lambda service: service.ingest)


def _route(
    answer: Callable[..., _Result], thread: Callable[[Service], ServerThread]
) -> Callable[..., Awaitable[_Result]]:
    async def route(call: Call, **given: Any) -> _Result:
        return await thread(call.service).run(partial(answer, call=call, **given))

    # FastAPI reads a route's name, description and parameters from these; the server is not among the parameters
    signature = inspect.signature(answer, eval_str=True)
    _server, *parameters = signature.parameters.values()
    route.__name__, route.__doc__, route.__module__ = answer.__name__, answer.__doc__, answer.__module__
    route.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return route
