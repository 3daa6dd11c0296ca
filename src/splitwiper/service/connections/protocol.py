"""HTTP connections that know the peer's certificate, and do not wait for a silent peer indefinitely.

A `Connection` is uvicorn's HTTP protocol, with a watch. It learns from asyncio when data arrived and how much is
unsent, and from ASGI when a call has begun and whether it waits for more of its body. Incoming data is parsed here
first (`_Bounds`), because neither httptools nor uvicorn limits what a peer can make them store.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from splitwiper.service.connections.access import PEER

App = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]
_log = logging.getLogger("splitwiper.service.connections")
_AROUND = 1 << 15
"""Bytes of a call besides its body: request line, headers, and chunk framing."""
_WAITING = 4
"""Unanswered calls with complete headers on one connection. No client needs more than two: an answer may have arrived
before the server notices that it is complete."""
_PIECE = 1 << 14
"""Bytes parsed between checks of these limits."""
_LINGER = 0.5
"""Seconds in which a refused peer may read the reason."""


class _Bounds:
    """Follows what one connection sends, and refuses anything that would be stored without limit.

    The methods named on_… are httptools callbacks; an exception in one ends the parsing.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._left, self._in_headers = _AROUND, True
        self.waiting = 0
        """Unanswered calls whose headers are complete."""
        self.body = 0
        """Bytes of bodies received."""

    def take(self, data: bytes) -> HTTPStatus | None:
        """Parse the next bytes; return the status to refuse them with, or None."""
        self._left -= len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # not supported: uvicorn answers the call as it is
            pass
        except httptools.HttpParserError:
            return HTTPStatus.BAD_REQUEST
        if self._left < 0:
            return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        # on_body adds to what is left while data is parsed; at most one allowance is carried over
        self._left = min(self._left, _AROUND)
        return None

    def answered(self) -> None:
        """Note that a call was answered."""
        self.waiting -= 1
        self._left = _AROUND

    def on_header(self, _name: bytes, _value: bytes) -> None:
        """Refuse headers after a body (trailers): nothing here reads them, and uvicorn would store them."""
        if not self._in_headers:
            raise ValueError

    def on_headers_complete(self) -> None:
        """Refuse another call if too many are unanswered."""
        self._in_headers = False
        self.waiting += 1
        if self.waiting > _WAITING:
            raise ValueError

    def on_body(self, body: bytes) -> None:
        """Count the body, and allow chunk framing of a sixteenth of its size: tiny chunks cost time like large ones."""
        self.body += len(body)
        self._left += len(body) + len(body) // 16

    def on_message_complete(self) -> None:
        """Expect another call."""
        self._in_headers = True


class Connection(HttpToolsProtocol):
    """An HTTP connection whose requests carry the peer's certificate.

    A peer whose line is cut does not close its connection: if it were kept, the upload would still count as being sent.
    So a connection is broken off when a call waits for its body and nothing arrives, when headers are not complete
    after a while, or when an answer is not read. Calls that are being computed may take as long as they need.
    """

    silence = 60.0
    """Seconds to wait for the other side."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        # uvicorn calls its `app` for every call on this connection, so this one learns when calls begin and end
        self._answer, self.app = self.app, self._call
        self._bounds = _Bounds()
        self.closed: asyncio.Future[None] = self.loop.create_future()
        self.certificate: bytes | None = None
        """The peer's certificate, in DER form; None if a proxy terminates TLS."""
        self._timer: asyncio.TimerHandle | None = None
        self._calls, self._awaiting, self._unsent, self._refused = 0, False, 0, False
        self._heard = self.loop.time()
        self._asked: float | None = self._heard
        """The time since when a call's headers are awaited; None if none are."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Store the peer's certificate, and start watching the connection."""
        secured: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        self.certificate = secured.getpeercert(binary_form=True) if secured else None
        self._heard = self._asked = self.loop.time()  # a handshake may have taken a while
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.silence / 4, self._watch)

    def data_received(self, data: bytes) -> None:
        """Pass on data, within bounds."""
        now, known = self.loop.time(), self._bounds.body
        if not self._calls and self._asked is None:
            self._asked = now
        for start in range(0, len(data), _PIECE):
            if self._refused or self.transport.is_closing():  # the peer may not have noticed yet
                return
            piece = data[start : start + _PIECE]
            if (refused := self._bounds.take(piece)) is not None:
                self._refuse(refused)
                return
            super().data_received(piece)
        if self._bounds.body > known:  # empty chunks count as silence
            self._heard = now

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
        self.closed.set_result(None)
        super().connection_lost(exc)

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer with an error, unless another answer is due first; the connection ends in any case."""
        _log.warning("a connection was ended: %s", status.phrase)
        if self._bounds.waiting:
            self.transport.abort()
            return
        reason = (
            f"{status.phrase}: besides its body a call has {_AROUND:,} bytes at most, and nothing follows the body."
        )
        body = json.dumps({"kind": "InputError", "message": reason})
        start = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        self.transport.write(f"{start}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        # Closed at once, with data that nobody read, the peer's system would drop the answer before the peer reads it.
        self._refused = True
        self.loop.call_later(_LINGER, self.transport.close)

    def abort_idle(self) -> None:
        """Break the connection off unless a call is in progress; do not wait for idle peers to close it."""
        if not self._calls:
            self.transport.abort()

    async def _call(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Run the application for a call, and record when it waits for more of the body."""
        more = True

        async def watched_receive() -> Any:
            nonlocal more
            if not more:  # from here on it only waits for the peer to disconnect
                return await receive()
            self._awaiting, self._heard = True, self.loop.time()
            try:
                message = await receive()
            finally:
                self._awaiting = False
            more = message.get("more_body", False)
            return message

        self._calls, self._asked = self._calls + 1, None
        try:
            await self._answer({**scope, PEER: self.certificate}, watched_receive, send)
        finally:
            self._calls -= 1
            self._bounds.answered()

    def _watch(self) -> None:
        """Break the connection off if it waits for the peer for too long; otherwise check again later."""
        now, unsent = self.loop.time(), self.transport.get_write_buffer_size()
        if unsent != self._unsent:  # the peer is reading, however slowly
            self._heard, self._unsent = now, unsent
        silent = now - self._heard > self.silence and (unsent or self._awaiting)
        if silent or (self._asked is not None and now - self._asked > self.silence):
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(self.silence / 4, self._watch)
