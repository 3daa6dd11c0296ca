"""HTTP connections that know who is at the other end, and do not wait for ever for a peer that went silent.

A `Connection` stands between a transport and uvicorn's HTTP protocol. It learns from asyncio when something came and
how much is unsent, and from ASGI (`watched`) when a call has begun and whether it waits for more of its body. What came
is parsed here first (`_Bounds`): neither httptools nor uvicorn limits what a peer can have them remember.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from splitwiper.service.access import PEER

App = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]
_log = logging.getLogger("splitwiper.service.connections")
_AROUND = 1 << 15
"""Bytes of a call beside its body: its first line, headers, and what frames chunks."""
_WAITING = 4
"""Calls on one connection whose headers came and that are not answered. No client needs more than two: the bytes of an
answer may be there before the server knows that it is done."""
_PIECE = 1 << 14
"""Bytes that are parsed before these limits are looked at."""
_connection: contextvars.ContextVar[Connection | None] = contextvars.ContextVar("connection", default=None)


class _Bounds:
    """Follows what one connection sends, and refuses what would be remembered without end.

    These are httptools' callbacks; an exception in one ends the parsing.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._left, self._in_headers = _AROUND, True
        self.waiting = 0
        """Calls whose headers came and that are not answered."""
        self.body = 0
        """Bytes of bodies that came."""

    def take(self, data: bytes) -> HTTPStatus | None:
        """Look at what comes next; returns what to refuse it with, if anything."""
        self._left -= len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # none is offered: uvicorn answers the call as it is
            pass
        except httptools.HttpParserError:
            return HTTPStatus.BAD_REQUEST
        if self._left < 0:
            return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        self._left = min(self._left, _AROUND)
        return None

    def answered(self) -> None:
        """Note that a call was answered."""
        self.waiting -= 1
        self._left = _AROUND

    def on_header(self, _name: bytes, _value: bytes) -> None:
        """Refuse headers behind a body: nothing here reads them, and uvicorn would keep them."""
        if not self._in_headers:
            raise ValueError

    def on_headers_complete(self) -> None:
        """Refuse another call while so many wait."""
        self._in_headers = False
        self.waiting += 1
        if self.waiting > _WAITING:
            raise ValueError

    def on_body(self, body: bytes) -> None:
        """Count it, and allow chunks their frames unless they are tiny: each costs time, however short it is."""
        self.body += len(body)
        self._left += len(body) + len(body) // 16

    def on_message_complete(self) -> None:
        """Expect another call."""
        self._in_headers = True


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
        self._bounds = _Bounds()
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
        """Pass on what came, within bounds. Tasks that uvicorn starts for it find this connection in their context."""
        now, known = self._loop.time(), self._bounds.body
        if not self._calls and self._asked is None:
            self._asked = now
        for start in range(0, len(data), _PIECE):
            if self._transport.is_closing():  # what was refused goes on coming
                return
            piece = data[start : start + _PIECE]
            if (refused := self._bounds.take(piece)) is not None:
                self._refuse(refused)
                return
            self._context.run(self._http.data_received, piece)
        if self._bounds.body > known:  # chunks that hold nothing are silence
            self._heard = now

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

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer that this cannot be taken, where no other answer is due before; the connection ends either way."""
        _log.warning("a connection was ended: %s", status.phrase)
        if self._bounds.waiting:
            self.abort()
            return
        told = f"{status.phrase}: beside its body a call has {_AROUND:,} bytes at most, and nothing follows the body."
        body = json.dumps({"kind": "InputError", "message": told})
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        self._transport.close()

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
            self._bounds.answered()

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
