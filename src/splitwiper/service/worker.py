"""The worker: a process of its own that trains whenever the model is not the manifest's, under the store's lease.

It can be killed at any instant: what it had not published is trained again by the next one, to the same bits.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from splitwiper.errors import BusyError, SplitWiperError, UntrainableError
from splitwiper.server import Server
from splitwiper.service.cases import Cases
from splitwiper.service.certificate.issuing import kept_at
from splitwiper.service.certifying import certified
from splitwiper.service.lapsing import Lapses
from splitwiper.service.settings import ServiceConfig
from splitwiper.service.shared_book import service_book
from splitwiper.service.uploads import drop
from splitwiper.splitting import ServerHalf
from splitwiper.store import ServerTree, manifest_digest

_LOOK = 0.2
_log = logging.getLogger("splitwiper.service")


def work(root: Path, half: ServerHalf, config: ServiceConfig, *, stop: threading.Event | None = None) -> None:
    """Train until told to stop.

    Args:
        root: the server's folder.
        half: the architecture.
        config: how long to wait for further requests, and for clients that asked.
        stop: ends it after the training under way.
    """
    stop = stop or on_signals()
    coalesce, deadline = config.coalesce, config.deadline
    server, lapses = Server(ServerTree(root), half, shared=True), Lapses(config.lapse)
    server.before_set_aside = _given_up(root)
    _catch_up(server, deadline)
    failed: object = None
    while not stop.wait(_LOOK):
        with _going_on():
            lapses.expire(server.tree, server.before_set_aside)
        if server.tree.is_current() or _state(server) == failed:
            continue
        if not _quiet(server, coalesce, stop):
            continue
        start = time.perf_counter()
        try:
            receipts = server.train()
        except BusyError:
            continue
        except UntrainableError as problem:  # the same rows give the same end, and no shard is to blame
            failed = _state(server)
            _log.error("training went wrong: %s", problem)
            continue
        except SplitWiperError as problem:
            _log.error("%s: %s", type(problem).__name__, problem)
            stop.wait(5)
            continue
        failed = None
        _certify(server, [receipt.ticket for receipt in receipts], deadline)
        _log.info("trained", extra={"seconds": round(time.perf_counter() - start, 3), "settled": len(receipts)})


def _given_up(root: Path) -> Callable[[str], None]:
    """Return what keeps anything from becoming a client's shard that was sent before its shard is erased."""

    def give_up(client: str) -> None:
        with closing(service_book(root)) as book:
            drop(book, root / "uploads", client)
            Cases(book).void(client)

    return give_up


def _catch_up(server: Server, deadline: float) -> None:
    """Accept requests that were received when the service died, and certify what was settled when a worker did."""
    tickets = server.tree.tickets()
    known = {ticket.id for ticket in tickets}
    with closing(service_book(server.tree.root)) as book:
        for case in Cases(book).every():
            if case.ticket not in known:
                with _going_on():
                    server.submit(case.request)
    settled = [ticket.id for ticket in tickets if ticket.state == "settled"]
    _certify(server, [ticket for ticket in settled if not kept_at(server.tree, ticket).exists()], deadline)


def _certify(server: Server, tickets: Sequence[str], deadline: float) -> None:
    """Sign what was just settled, while all that a certificate can show is still there."""
    with closing(service_book(server.tree.root)) as book:
        for ticket in tickets:
            with _going_on():
                certified(server.tree, Cases(book), ticket, days=deadline)


@contextmanager
def _going_on() -> Iterator[None]:
    """What is wrong with one request keeps nobody else's from being carried out."""
    try:
        yield
    except SplitWiperError as problem:
        _log.error("%s: %s", type(problem).__name__, problem)


def _state(server: Server) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return what a training depends on: the manifest, and the requests that wait for it."""
    return manifest_digest(server.tree.shards()), tuple((t.id, t.state) for t in server.tree.waiting())


def _quiet(server: Server, seconds: float, stop: threading.Event) -> bool:
    """Wait until nothing has changed for so long; False where told to stop meanwhile."""
    seen, since = None, time.monotonic()
    latest = since + 10 * seconds  # others go on asking: those who asked first do not wait for ever
    while not stop.is_set():
        now = _state(server)
        if now != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() - since >= seconds or time.monotonic() >= latest:
            return True
        stop.wait(min(_LOOK, seconds or _LOOK))
    return False


def on_signals() -> threading.Event:
    """An event that the signals to end set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
