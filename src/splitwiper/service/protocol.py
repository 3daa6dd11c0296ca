"""HTTP connections that know who is at the other end, and do not wait for ever for one that went silent."""

from __future__ import annotations

import ssl
from asyncio import TimerHandle, Transport
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from splitwiper.service.access import PEER

_App = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


class PeerProtocol(HttpToolsProtocol):
    """HTTP whose requests know the certificate that their connection came with.

    A peer whose line is cut says no goodbye: were its connection kept, its upload would be taken for one that is still
    being sent to. So a connection is broken off when a request was begun and nothing more comes, when its headers are
    not through in that time, however they drip, or when an answer is not taken. What arrived of an upload stays.
    """

    silence = 60.0
    """Seconds to wait for the other side."""
    _look: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Take the certificate from the connection."""
        super().connection_made(transport)
        secured: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = secured.getpeercert(binary_form=True) if secured else None
        inner: _App = self.app

        async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            scope[PEER] = certificate
            await inner(scope, receive, send)

        self.app = app
        self._heard = self._asked = self.loop.time()
        self._in_headers, self._unsent = True, 0  # until the first request is there
        self._again()

    def data_received(self, data: bytes) -> None:
        """Take what came, and when."""
        self._heard = self.loop.time()
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request's headers begin."""
        self._asked, self._in_headers = self.loop.time(), True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """They are through."""
        self._in_headers = False
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop looking."""
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def _again(self) -> None:
        self._look = self.loop.call_later(self.silence / 4, self._watch)

    def _watch(self) -> None:
        """Break the connection off where it is the other side that keeps it waiting."""
        now, unsent = self.loop.time(), self.transport.get_write_buffer_size()
        if unsent != self._unsent:  # it takes what it is sent, if slowly
            self._heard, self._unsent = now, unsent
        awaited = self.cycle is not None and not self.cycle.response_complete and self.cycle.more_body
        silent = now - self._heard > self.silence and (unsent or (awaited and not self.flow.read_paused))
        if silent or (self._in_headers and now - self._asked > self.silence):
            self.transport.abort()
            return
        self._again()

    def shutdown(self) -> None:
        """Let a call that is being answered finish; do not wait for idle peers to say goodbye."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()
        else:
            super().shutdown()
