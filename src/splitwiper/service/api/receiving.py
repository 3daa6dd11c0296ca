"""Bodies that are kept in memory: how large they may get, what a client may hold, and how slowly they may come.

A body that drips holds memory for as long as it likes, so the time that it may take goes by what has come of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect

from splitwiper.errors import LargeError, SlowError
from splitwiper.service.access import Keeping


@dataclass(frozen=True)
class Pace:
    """How fast a body must come.

    Attributes:
        grace: seconds that any may take, however small.
        rate: bytes a second that it must come at beyond these.
        longest: seconds after which it must be whole.
    """

    grace: float = 30.0
    rate: float = 1 << 17
    longest: float = 600.0

    def allowed(self, size: int) -> float:
        """Seconds within which more must have come than so many bytes.

        >>> Pace().allowed(1 << 20), Pace().allowed(1 << 30)
        (38.0, 600.0)
        """
        return min(self.grace + size / self.rate, self.longest)


PACE = Pace()
"""A megabit a second, and ten minutes."""


SMALL = 4 << 20
"""Bytes of a body that is neither a shard nor a prediction: a sealed message is the longest."""
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


async def small(scope: MutableMapping[str, Any], receive: Receive, held: Keeping) -> Receive:
    """Take a body in before anybody looks at it, so that none is larger than it may be; what then gives it again.

    Raises:
        LargeError: it is larger.
        QuotaError: the client has more under way than its share.
        SlowError: it comes too slowly.
        ClientDisconnect: who sent it is gone.
    """
    if not any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"]):
        return receive
    body: bytes | None = bytes(await received(_pieces(receive), held, most=SMALL))

    async def again() -> MutableMapping[str, Any]:
        nonlocal body
        if body is None:
            return await receive()
        given, body = body, None
        return {"type": "http.request", "body": given, "more_body": False}

    return again


async def _pieces(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        more = message.get("more_body", False)
        yield message.get("body", b"")


async def received(pieces: AsyncIterator[bytes], held: Keeping, *, most: int) -> bytearray:
    """All that is sent, as far as there is memory for it beside what others send just now.

    Args:
        pieces: of the body.
        held: counts what it takes.
        most: bytes at most.

    Raises:
        LargeError: it is larger.
        QuotaError: the client has more under way than its share.
        SlowError: it comes too slowly.
    """
    body, loop = bytearray(), asyncio.get_running_loop()
    begun = loop.time()
    try:
        async with asyncio.timeout_at(begun + PACE.allowed(0)) as limit:
            async for piece in pieces:
                if len(body) + len(piece) > most:
                    raise LargeError(f"this call takes a body of {most:,} bytes at most: send less in one.")
                held.take(len(piece))
                body += piece
                limit.reschedule(begun + PACE.allowed(len(body)))
    except TimeoutError as problem:
        raise SlowError(
            f"{len(body):,} bytes came in {loop.time() - begun:.0f} seconds: after the first {PACE.grace:g} they must "
            f"come at {PACE.rate / 1024:g} KiB a second, and be whole after {PACE.longest:g}. Ask in smaller parts, or "
            "over a faster line."
        ) from problem
    return body
