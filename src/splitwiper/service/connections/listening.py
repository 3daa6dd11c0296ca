"""Accepting connections, up to a limit, without letting any peer keep others out.

A peer that connects and stays silent takes one of the places for unfinished TLS handshakes, for a short time. If all
places are taken, the oldest handshake of the address with the most of them is dropped for the next connection.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import signal
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache

import uvicorn
from cryptography import x509

from splitwiper.errors import ConfigError
from splitwiper.service.connections.protocol import App, Connection

_log = logging.getLogger("splitwiper.service.connections")
BACKLOG = 128
_RESERVED = 64
"""Descriptors left for files, databases and the worker."""
_GRACE = 0.5
"""Seconds that every handshake is given, however many others wait."""
_GOODBYE = 10.0
"""Time limit in seconds for closing a TLS connection."""
_PAUSE = 0.2
"""Seconds to wait after the system could not accept a connection."""


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits on the number of connections.

    Attributes:
        connections: the largest number of open connections.
        each: the largest number with one certificate.
        handshakes: the largest number with an unfinished TLS handshake.
        seconds: the time limit of a handshake.
    """

    connections: int = 400
    each: int = 32
    handshakes: int = 128
    seconds: float = 10.0

    def within(self, descriptors: int) -> ConnectionLimits:
        """Return limits that fit a process with this many descriptors; a connection may also have a file open.

        >>> ConnectionLimits().within(1024) == ConnectionLimits(), ConnectionLimits().within(200)
        (True, ConnectionLimits(connections=68, each=32, handshakes=34, seconds=10.0))
        """
        free = max(8, descriptors - _RESERVED)
        return replace(self, connections=min(self.connections, free // 2), handshakes=min(self.handshakes, free // 4))


def descriptors() -> int:
    """Return how many files and connections this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of a host.

    Raises:
        ConfigError: that is impossible, for example because another program listens there.
    """
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(addresses):
            # port 0 takes any free port for the first address; the others must have the same one
            port = sockets[0].getsockname()[1] if sockets else port
            try:
                sockets.append(socket.create_server((address[0], port, *address[2:]), family=family, backlog=BACKLOG))
            except OSError as unavailable:
                if unavailable.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                problem = unavailable  # a name may have an address that this machine lacks
    except OSError as failure:
        problem = failure
        while sockets:
            sockets.pop().close()
    if not sockets:
        # create_server repeats the address in brackets, which the message below names already
        why = str(problem.strerror).partition(" (while")[0] if problem else "it has no address"
        raise ConfigError(
            f"cannot listen on {host}:{port}: {why}. Stop the program that listens there, or choose another address "
            "with --host and --port, or in [service]."
        ) from problem
    for listening in sockets:
        listening.setblocking(False)
    return sockets


class Listener:
    """Accepts connections, runs their TLS handshakes, and counts them. It begins at once, in the running event loop.

    Args:
        sockets: the listening sockets.
        make: makes the protocol of a connection.
        limits: limits on the number of connections.
        context: the TLS context; None if a proxy terminates TLS.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        make: Callable[[], Connection],
        limits: ConnectionLimits,
        context: ssl.SSLContext | None,
    ) -> None:
        self._sockets, self._make, self._limits, self._tls = sockets, make, limits, context
        self._unfinished: dict[asyncio.Task[None], tuple[str, float]] = {}
        """Handshakes, oldest first: address, and start time."""
        self._open: set[Connection] = set()
        self._by_certificate: Counter[bytes | None] = Counter()
        self._changed = asyncio.Event()
        self._accepting = [asyncio.create_task(self._accept(listening)) for listening in self._sockets]

    async def close(self) -> None:
        """Stop accepting, and break off connections without a call in progress."""
        for task in (*self._accepting, *self._unfinished):
            task.cancel()
        await asyncio.gather(*self._accepting, *self._unfinished, return_exceptions=True)
        for listening in self._sockets:
            listening.close()
        for connection in tuple(self._open):
            connection.abort_idle()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room()
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as problem:  # for example no descriptor is left, or the peer is gone already
                _log.warning("no connection could be accepted: %s", problem)
                await asyncio.sleep(_PAUSE)
                continue
            task = asyncio.create_task(self._shake_hands(accepted))
            self._unfinished[task] = (str(address[0]) if address else "", loop.time())
            task.add_done_callback(self._shaken)

    def _shaken(self, task: asyncio.Task[None]) -> None:
        del self._unfinished[task]
        self._changed.set()
        if not task.cancelled() and (problem := task.exception()) is not None:
            _log.error("a connection could not be served", exc_info=problem)

    async def _room(self) -> None:
        """Wait until another connection may be accepted."""
        while True:
            wait: float | None = None
            if len(self._open) < self._limits.connections:
                if len(self._unfinished) < self._limits.handshakes:
                    return
                wait = self._give_up_one()
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait)

    def _give_up_one(self) -> float:
        """Drop the oldest handshake of the address with the most; return how long to wait before checking again."""
        (most, _), *_ = Counter(address for address, _ in self._unfinished.values()).most_common(1)
        task, begun = next((task, begun) for task, (address, begun) in self._unfinished.items() if address == most)
        left = begun + _GRACE - asyncio.get_running_loop().time()
        if left > 0:
            return left
        task.cancel()
        _log.warning("a connection whose TLS handshake was not finished was dropped", extra={"address": most})
        return _GRACE

    async def _shake_hands(self, accepted: socket.socket) -> None:
        """Complete one connection's TLS handshake, if there is TLS, and count the connection."""
        timeouts = {}
        if self._tls is not None:
            timeouts = {"ssl_handshake_timeout": self._limits.seconds, "ssl_shutdown_timeout": _GOODBYE}
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _, connection = await asyncio.get_running_loop().connect_accepted_socket(
                self._make, accepted, ssl=self._tls, **timeouts
            )
        except OSError:  # no valid certificate, too slow, or gone: the peer's fault, not the server's
            accepted.close()
            return
        except asyncio.CancelledError:
            accepted.close()
            raise
        self._count(connection)

    def _count(self, connection: Connection) -> None:
        """Count a connection until it is closed, or break it off if there are too many."""
        certificate = _signed_part(connection.certificate)
        full = len(self._open) >= self._limits.connections  # several handshakes may end at once
        if full or (certificate is not None and self._by_certificate[certificate] >= self._limits.each):
            with_it = self._by_certificate[certificate] if certificate else 0
            counts = {"connections": len(self._open), "of_this_certificate": with_it}
            _log.warning("a connection was refused: there are too many", extra=counts)
            connection.transport.abort()
            return
        self._by_certificate[certificate] += 1
        self._open.add(connection)
        # called even if the peer has closed it by now
        connection.closed.add_done_callback(lambda _: self._forget(connection))

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        certificate = _signed_part(connection.certificate)
        self._by_certificate[certificate] -= 1
        if not self._by_certificate[certificate]:
            del self._by_certificate[certificate]
        self._changed.set()


@lru_cache(4096)
def _signed_part(certificate: bytes | None) -> bytes | None:
    """Return what an authority signed of a certificate: whoever has one can spell the signature itself in two ways."""
    return x509.load_der_x509_certificate(certificate).tbs_certificate_bytes if certificate else None


class HttpServer(uvicorn.Server):
    """Uvicorn with a `Listener`.

    Args:
        app: the application.
        sockets: the listening sockets.
        limits: limits on connections.
        secured: makes the TLS context; None if a proxy terminates TLS.
        grace: seconds that calls in progress are given when the server stops.
        ready: called with the address when the server listens.
        lost: an event that stops the server.
    """

    def __init__(
        self,
        app: App,
        sockets: Sequence[socket.socket],
        limits: ConnectionLimits,
        *,
        secured: Callable[[], ssl.SSLContext] | None,
        grace: int | None = None,
        ready: Callable[[str], None] = lambda _: None,
        lost: threading.Event | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=grace,
            )
        )
        self._listening, self._limits, self._secured = sockets, limits, secured
        self._ready, self._lost = ready, lost or threading.Event()
        scheme, (host, port, *_) = "https" if secured else "http", sockets[0].getsockname()
        self.url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then listen, with limits that uvicorn's own listener lacks."""
        await super().startup(sockets=[])
        if self.started:
            context = self._secured() if self._secured else None
            parts = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
            self._listener = Listener(self._listening, lambda: Connection(**parts), self._limits, context)
            self._ready(self.url)

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop."""
        return await super().on_tick(counter) or self._lost.is_set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop cleanly on a signal and return to the caller; uvicorn would raise the signal again at the end."""
        numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, finish the calls in progress, and stop the application."""
        await self._listener.close()
        await super().shutdown(sockets=[])
