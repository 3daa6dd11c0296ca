"""Accepting connections, up to a limit, without letting any peer keep others out.

A peer that connects and stays silent takes one of the places for unfinished TLS handshakes, for a short time. If all
places are taken, the oldest handshake of the address with the most of them is dropped for the next connection.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import uvicorn

from splitwiper.errors import ConfigError
from splitwiper.service.protocol import App, Connection, watched

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
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            at = (address[0], sockets[0].getsockname()[1] if sockets and not port else port, *address[2:])
            try:
                sockets.append(_listening(family, at))
            except OSError as told:
                if told.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                problem = told  # a name may have an address that this machine lacks
    except OSError as told:
        problem = told
        for one in sockets:
            one.close()
        sockets = []
    if not sockets:
        why = problem.strerror if problem else "it has no address"
        raise ConfigError(
            f"cannot listen on {host}:{port}: {why}. Stop the program that listens there, or choose another address "
            "with --host and --port, or in [service]."
        ) from problem
    return sockets


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


class Listener:
    """Accepts connections, runs their TLS handshakes, and counts them.

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
        self._tasks: set[asyncio.Task[None]] = set()
        self._by: Counter[bytes | None] = Counter()
        self._changed = asyncio.Event()

    def start(self) -> None:
        """Start accepting connections."""
        self._accepting = [asyncio.create_task(self._accept(one)) for one in self._sockets]

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
            task = asyncio.create_task(self._serve(accepted))
            self._unfinished[task] = (str(address[0]) if address else "", loop.time())
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._unfinished.pop(task, None)
        self._tasks.discard(task)
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
        task, begun = next((t, begun) for t, (address, begun) in self._unfinished.items() if address == most)
        left = begun + _GRACE - asyncio.get_running_loop().time()
        if left > 0:
            return left
        task.cancel()
        _log.warning("a connection whose TLS handshake was not finished was dropped", extra={"address": most})
        return _GRACE

    async def _serve(self, accepted: socket.socket) -> None:
        """Complete one connection's handshake, and count the connection until it is closed."""
        how = {}
        if self._tls is not None:
            how = {"ssl_handshake_timeout": self._limits.seconds, "ssl_shutdown_timeout": _GOODBYE}
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _, connection = await asyncio.get_running_loop().connect_accepted_socket(
                self._make, accepted, ssl=self._tls, **how
            )
        except OSError:  # no valid certificate, too slow, or gone: the peer's fault, not the server's
            accepted.close()
            return
        except asyncio.CancelledError:
            accepted.close()
            raise
        task = asyncio.current_task()
        if task is not None:
            self._unfinished.pop(task, None)
            self._changed.set()
        await self._count(connection)

    async def _count(self, connection: Connection) -> None:
        who = connection.certificate
        full = len(self._open) >= self._limits.connections  # several handshakes may end at once
        if full or (who is not None and self._by[who] >= self._limits.each):
            told = {"connections": len(self._open), "of_this_certificate": self._by[who] if who else 0}
            _log.warning("a connection was refused: there are too many", extra=told)
            connection.abort()
            return
        self._by[who] += 1
        self._open.add(connection)
        try:
            await connection.closed.wait()
        finally:
            self._open.discard(connection)
            self._by[who] -= 1
            if not self._by[who]:
                del self._by[who]


class HttpServer(uvicorn.Server):
    """Uvicorn with a `Listener`.

    Args:
        app: the application.
        sockets: the listening sockets.
        limits: limits on connections.
        secured: makes the TLS context; None if a proxy terminates TLS.
        grace: seconds that calls in progress are given when the server stops.
    """

    def __init__(
        self,
        app: App,
        sockets: Sequence[socket.socket],
        limits: ConnectionLimits,
        *,
        secured: Callable[[], ssl.SSLContext] | None,
        grace: int | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                watched(app),
                http=Connection,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=grace,
            )
        )
        self._listening, self._limits, self._secured = sockets, limits, secured
        scheme, (host, port, *_) = "https" if secured else "http", sockets[0].getsockname()
        self.url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then listen, with limits that uvicorn's own listener lacks."""
        await super().startup(sockets=[])
        if self.started:
            context = self._secured() if self._secured else None
            self._listener = Listener(self._listening, self._connection, self._limits, context)
            self._listener.start()

    def _connection(self) -> Connection:
        return Connection(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, finish the calls in progress, and stop the application."""
        await self._listener.close()
        await super().shutdown(sockets=[])
