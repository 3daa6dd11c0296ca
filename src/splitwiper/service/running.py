"""Running the service: uvicorn with mutual TLS, and a worker process; a signal stops both cleanly."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from splitwiper.engines import make_engine
from splitwiper.errors import FencedError, SplitWiperError
from splitwiper.service.api import Service, create_app
from splitwiper.service.connections.access import Authenticator
from splitwiper.service.connections.listening import ConnectionLimits, HttpServer, descriptors, listen
from splitwiper.service.identity import Tokens, Trust, server_context
from splitwiper.service.settings import ServiceConfig
from splitwiper.service.storing import ServerSettings, open_store
from splitwiper.store.database import Database

_log = logging.getLogger("splitwiper.service")
_GRACE = 20


def serve(root: Path, settings: ServerSettings, *, config: Path, ready: Callable[[str], None] = lambda _: None) -> None:
    """Serve a store until stopped by a signal.

    Args:
        root: the store's folder.
        settings: the server's settings.
        config: their file, which the worker reads too.
        ready: called with the address when the service listens.

    Raises:
        BusyError: another process serves this store.
        ConfigError: the address is taken, or there is no such engine.
        FencedError: another process took the store over, after this one had been suspended for long.
    """
    wanted, certs = settings.service, settings.certs()
    tokens = wanted.identity == "tokens"
    make_engine(wanted.engine, wanted.ranks, wanted.engine_args)  # refused here, and not by every worker to come
    halves = open_store(root, settings)
    authenticator = Authenticator(tokens=Tokens(certs)) if tokens else Authenticator(trust=Trust(certs))
    sockets = listen(wanted.host, wanted.port)

    def listens(url: str) -> None:
        # what is loaded by now stays loaded: to search all of it for garbage would stop every call for 0.1 to 0.2 s
        gc.collect()
        gc.freeze()
        ready(url)

    try:
        service = Service(root, halves.server, wanted, authenticator)
        # the lease first: a second server must not start a worker on the same store
        with _alone(root) as lost, _worker(root, config):
            secured = None if tokens else lambda: server_context(certs, revoked=True)
            limits = _limits(wanted)
            app = create_app(service)
            HttpServer(app, sockets, limits, secured=secured, grace=_GRACE, ready=listens, lost=lost).run()
    finally:
        for listening in sockets:
            listening.close()
    if lost.is_set():
        raise FencedError(f"another process serves {root} now; this one has stopped. Keep one of the two.")


def _limits(config: ServiceConfig) -> ConnectionLimits:
    """Return the configured connection limits, or smaller ones that this process can keep."""
    wanted = ConnectionLimits(config.connections, config.connections_each, config.handshakes, config.handshake)
    kept = wanted.within(descriptors())
    if kept != wanted:
        limits = {"connections": kept.connections, "handshakes": kept.handshakes}
        _log.warning("this process may open %d files, so fewer connections are taken", descriptors(), extra=limits)
    return kept


@contextmanager
def _alone(root: Path) -> Iterator[threading.Event]:
    """Hold the store's lease; the event yielded is set if another server takes it over all the same."""
    database, lost, stop = Database(root / "service.db", ""), threading.Event(), threading.Event()

    def look() -> None:
        while not stop.wait(1.0):
            try:
                database.check_lease()
            except FencedError as problem:
                _log.error("%s", problem)
                lost.set()
                return
            except SplitWiperError as problem:  # for example the disk: nobody can have taken the lease meanwhile
                _log.warning("%s", problem)

    with database.lease("serving"):
        watcher = threading.Thread(target=look, name="lease-watcher", daemon=True)
        watcher.start()
        try:
            yield lost
        finally:
            stop.set()
            watcher.join()


@contextmanager
def _worker(root: Path, config: Path) -> Iterator[None]:
    """Keep a worker process running; if it dies, start another."""
    stop = threading.Event()
    running: list[subprocess.Popen[bytes]] = []

    def keep() -> None:
        wait = 0.2
        while not stop.is_set():
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "splitwiper.service", str(config), str(root), str(os.getpid())]
            )
            running[:] = [process]
            code = process.wait()
            if not stop.is_set():
                _log.warning("the worker ended with %s; another one is started", code)
                stop.wait(wait)
                # a worker that cannot start at all must not be started in a tight loop
                wait = min(2 * wait, 10.0)

    keeper = threading.Thread(target=keep, name="worker-keeper", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        for process in running:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()  # the next worker repeats what was not published
        keeper.join(_GRACE)
