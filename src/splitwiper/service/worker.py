"""The worker: a process that trains, under the store's lease, whenever the model does not match the manifest.

It can be killed at any time: the next worker repeats any training that was not published, with the same bits.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from splitwiper.config import from_dict, read_toml
from splitwiper.engines import make_engine
from splitwiper.errors import BusyError, SplitWiperError, UntrainableError
from splitwiper.server import Server
from splitwiper.service.certificate.issuing import kept_at
from splitwiper.service.records.client_keys import ClientKeys
from splitwiper.service.records.database import service_database
from splitwiper.service.records.requests import Lapses, RequestRecords, certified
from splitwiper.service.records.uploads import drop
from splitwiper.service.settings import ServiceConfig
from splitwiper.service.storing import MODEL, Architecture
from splitwiper.splitting import ServerHalf
from splitwiper.store import ServerStore

_LOOK = 0.2
_log = logging.getLogger("splitwiper.service")


def work(root: Path, half: ServerHalf, config: ServiceConfig, *, stop: threading.Event | None = None) -> None:
    """Train until stopped: by the event, or by a signal if none is given, after the training in progress."""
    stop = stop or on_signals()
    engine = make_engine(config.engine, config.ranks, config.engine_args)
    model = from_dict(Architecture, read_toml(root / MODEL)).model
    server = Server(ServerStore(root), half, shared=True, engine=engine, model=model)
    lapses = Lapses(config.lapse)
    server.before_set_aside = _given_up(root)
    _catch_up(server, config.deadline)
    failed: object = None
    while not stop.wait(_LOOK):
        with _going_on():
            lapses.expire(server.store, server.before_set_aside)
        # what failed is not tried again until something that training depends on has changed
        if server.store.is_current() or _state(server) == failed:
            continue
        # several requests at about the same time are answered by one training
        if not _quiet(server, config.coalesce, stop):
            continue
        start = time.perf_counter()
        try:
            receipts = server.train()
        except BusyError:
            continue
        except UntrainableError as problem:  # the same rows would fail again, and no shard is to blame
            failed = _state(server)
            _log.error("training failed: %s", problem)
            continue
        except SplitWiperError as problem:
            _log.error("%s: %s", type(problem).__name__, problem)
            stop.wait(5)
            continue
        failed = None
        _certify(server, [receipt.ticket for receipt in receipts], config.deadline)
        _log.info("trained", extra={"seconds": round(time.perf_counter() - start, 3), "settled": len(receipts)})


def _given_up(root: Path) -> Callable[[str], None]:
    """Return a function that discards everything a client has sent, before its shard is erased."""

    def give_up(client: str) -> None:
        with closing(service_database(root)) as database:
            drop(database, root / "uploads", client)
            ClientKeys(database).void(client)

    return give_up


def _catch_up(server: Server, deadline: float) -> None:
    """Accept requests that were received before the service died, and certify those settled before a worker died."""
    tickets = server.store.tickets()
    known = {ticket.id for ticket in tickets}
    with closing(service_database(server.store.root)) as database:
        # a request is stored first and accepted afterwards; a server that died in between left it here
        for record in RequestRecords(database).every():
            if record.request.ticket not in known:
                with _going_on():
                    server.submit(record.request)
    settled = [ticket.id for ticket in tickets if ticket.state == "settled"]
    _certify(server, [ticket for ticket in settled if not kept_at(server.store, ticket).exists()], deadline)


def _certify(server: Server, tickets: Sequence[str], deadline: float) -> None:
    """Issue certificates for what was just settled, while everything that they can show still exists."""
    with closing(service_database(server.store.root)) as database:
        for ticket in tickets:
            with _going_on():
                certified(server.store, RequestRecords(database), ticket, days=deadline)


@contextmanager
def _going_on() -> Iterator[None]:
    """Log an error with one request, so that it does not stop the others."""
    try:
        yield
    except SplitWiperError as problem:
        _log.error("%s: %s", type(problem).__name__, problem)


def _state(server: Server) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return what training depends on: the manifest, and the open requests."""
    open_requests = tuple((ticket.id, ticket.state) for ticket in server.store.waiting())
    return server.store.manifest(), open_requests


def _quiet(server: Server, seconds: float, stop: threading.Event) -> bool:
    """Wait until nothing has changed for some seconds; return False if stopped meanwhile."""
    last, since = None, time.monotonic()
    latest = since + 10 * seconds  # a steady stream of requests must not delay the first ones indefinitely
    while not stop.is_set():
        state = _state(server)
        if state != last:
            last, since = state, time.monotonic()
        if time.monotonic() - since >= seconds or time.monotonic() >= latest:
            return True
        stop.wait(min(_LOOK, seconds or _LOOK))
    return False


def on_signals() -> threading.Event:
    """Return an event that termination signals set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
