"""HTTP connections that know who is at the other end, and do not wait for ever for a peer that went silent.

A `Connection` stands between a transport and uvicorn's HTTP protocol. It learns from asyncio when something came and
how much is unsent, and from ASGI (`watched`) when a call has begun and whether it waits for more of its body.
"""

from __future__ import annotations

import asyncio
import contextvars
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from splitwiper.service.access import PEER

App = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]
_connection: contextvars.ContextVar[Connection | None] = contextvars.ContextVar("connection", default=None)


class Connection(asyncio.Protocol):
    """HTTP whose requests know the certificate that their connection came with.

    A peer whose line is cut says no goodbye: were its connection kept, its upload would be taken for one that is still
    being sent to. So a connection is broken off when a call waits for its body and nothing comes, when headers are not
    through in that time, however they drip, or when an answer is not taken. What arrived of an upload stays.

    Args:
        given: what uvicorn makes an HTTP protocol with.
    """

    silence = 60.0
    """Seconds to wait for the other side."""

    def __init__(self, **given: Any) -> None:
        self._http = HttpToolsProtocol(**given)
        self._context = contextvars.copy_context()
        self._context.run(_connection.set, self)
        self.closed = asyncio.Event()
        self.certificate: bytes | None = None
        """The peer's, where TLS ends here."""
        self._timer: asyncio.TimerHandle | None = None
        self._calls, self._awaiting, self._unsent = 0, False, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the certificate from the connection, and begin to watch it."""
        self._transport = cast(asyncio.Transport, transport)
        secured: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        self.certificate = secured.getpeercert(binary_form=True) if secured else None
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._asked: float | None = self._heard
        """Since when a call's headers are awaited; None where none are."""
        self._http.connection_made(self._transport)
        self._again()

    def data_received(self, data: bytes) -> None:
        """Pass on what came. Tasks that uvicorn starts for it find this connection in their context."""
        self._heard = self._loop.time()
        if not self._calls and self._asked is None:
            self._asked = self._heard
        self._context.run(self._http.data_received, data)

    def eof_received(self) -> None:
        """Pass on that the peer sends nothing more."""
        self._http.eof_received()

    def pause_writing(self) -> None:
        """Pass on that the peer is slow to take what it is sent."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that it has taken enough."""
        self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
        self.closed.set()
        self._http.connection_lost(exc)

    def abort(self) -> None:
        """Break off."""
        self._transport.abort()

    def abort_idle(self) -> None:
        """Break off unless a call is being answered; idle peers are not waited for to say goodbye."""
        if not self._calls:
            self._transport.abort()

    async def call(self, app: App, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Have an application answer a call, and notice when it waits for more of the body."""
        more = True

        async def watched_receive() -> Any:
            nonlocal more
            if not more:  # what it waits for is that the peer leaves
                return await receive()
            self._awaiting, self._heard = True, self._loop.time()
            try:
                message = await receive()
            finally:
                self._awaiting = False
            more = message.get("more_body", False)
            return message

        self._calls, self._asked = self._calls + 1, None
        try:
            await app({**scope, PEER: self.certificate}, watched_receive, send)
        finally:
            self._calls -= 1

    def _again(self) -> None:
        self._timer = self._loop.call_later(self.silence / 4, self._watch)

    def _watch(self) -> None:
        """Break the connection off where it is the other side that keeps it waiting."""
        now, unsent = self._loop.time(), self._transport.get_write_buffer_size()
        if unsent != self._unsent:  # it takes what it is sent, if slowly
            self._heard, self._unsent = now, unsent
        silent = now - self._heard > self.silence and (unsent or self._awaiting)
        if silent or (self._asked is not None and now - self._asked > self.silence):
            self.abort()
            return
        self._again()


def watched(app: App) -> App:
    """Return an application whose calls are watched by the connection that they came over."""

    async def call(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        connection = _connection.get()
        if connection is None or scope["type"] != "http":
            await app(scope, receive, send)
        else:
            await connection.call(app, scope, receive, send)

    return call
