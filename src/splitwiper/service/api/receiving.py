"""Request bodies that are kept in memory: limits on their size, on memory per client, and on slowness.

A body that trickles in holds memory for as long as its sender likes, so its time limit depends on the bytes received.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from splitwiper.errors import DataError, LargeError, SlowError
from splitwiper.service.connections.limits import Reservation


@dataclass(frozen=True)
class Pace:
    """The minimum speed of a request body.

    Attributes:
        grace: seconds that any body may take, however small.
        rate: bytes a second that it must arrive at beyond that.
        longest: seconds after which it must be complete.
    """

    grace: float = 30.0
    rate: float = 1 << 17
    longest: float = 600.0

    def allowed(self, size: int) -> float:
        """Return the seconds within which more than ``size`` bytes must have arrived.

        >>> Pace().allowed(1 << 20), Pace().allowed(1 << 30)
        (38.0, 600.0)
        """
        return min(self.grace + size / self.rate, self.longest)


PACE = Pace()
"""One megabit a second, and ten minutes at most."""
SMALL = 4 << 20
"""Bytes of a body that is neither a shard nor a prediction: a sealed message is the longest."""
_ELEMENTS = 1 << 15
"""Elements of its JSON: nobody else is answered while it is parsed. The longest body is one long text."""
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


async def small(scope: MutableMapping[str, Any], receive: Receive, held: Reservation) -> Receive:
    """Read a whole body within its limits, and return a ``receive`` that replays it.

    Raises:
        DataError: its JSON has too many elements; or any error that `received` raises.
    """
    if not any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"]):
        return receive
    whole = await received(Request(scope, receive).stream(), held, most=SMALL)
    if whole.count(b",") + whole.count(b"[") + whole.count(b"{") > _ELEMENTS:
        raise DataError(f"the body has more elements than any call here takes: {_ELEMENTS:,} are the most.")
    body: bytes | None = bytes(whole)

    async def again() -> MutableMapping[str, Any]:
        nonlocal body
        if body is None:
            return await receive()
        message, body = {"type": "http.request", "body": body, "more_body": False}, None
        return message

    return again


async def received(
    pieces: AsyncIterator[bytes],
    held: Reservation,
    *,
    most: int,
    pause: Callable[[int, int], float] = lambda _piece, _body: 0.0,
) -> bytearray:
    """Return the whole body, as far as its memory quota allows.

    Args:
        pieces: the body's pieces.
        held: counts the memory that it takes.
        most: the largest size, in bytes.
        pause: returns the seconds to wait after a piece, given its size and that of the body so far.

    Raises:
        LargeError: it is larger.
        QuotaError: the client's bodies would hold more than its share of memory.
        SlowError: it arrives too slowly.
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
                if seconds := pause(len(piece), len(body)):
                    await asyncio.sleep(seconds)
    except TimeoutError as problem:
        raise SlowError(
            f"{len(body):,} bytes came in {loop.time() - begun:.0f} seconds: after the first {PACE.grace:g} they must "
            f"come at {PACE.rate / 1024:g} KiB a second, and be whole after {PACE.longest:g}. Ask in smaller parts, or "
            "over a faster line."
        ) from problem
    return body
