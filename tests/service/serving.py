"""A real service on loopback for tests: uvicorn with mutual TLS in a thread, and links with certificates."""

from __future__ import annotations

import functools
import shutil
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from splitwiper.service.api import Service, create_app
from splitwiper.service.connections.access import Authenticator
from splitwiper.service.connections.listening import ConnectionLimits, HttpServer, listen
from splitwiper.service.identity import Authority, Trust, client_context, server_context
from splitwiper.service.settings import ServiceConfig
from splitwiper.service.site.link import HttpsLink
from splitwiper.splitting import ServerHalf
from splitwiper.wire import Accepted, ModelCopy, Posted, Receipt, Request, Scores, Standing, Statement, Ticket

CLIENTS = ("north", "south", "west")
OPEN = {
    "probabilities": True,
    "withdraw": False,
    "rate": 1e4,
    "burst": 10_000,
    "requests": 1000,
    "signed": False,
    "reserve": 0.0,
}


def certificates(folder: Path, clients: tuple[str, ...] = CLIENTS) -> Path:
    """An authority with a server, clients, an operator and an auditor: a copy of one that is made once."""
    return Path(shutil.copytree(Path(_made(clients).name), folder, dirs_exist_ok=True))


@functools.cache
def _made(clients: tuple[str, ...]) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    authority = Authority.create(Path(folder.name), "tests", hosts=["127.0.0.1", "localhost"])
    for name in clients:
        authority.issue_client(name)
    authority.issue_operator("ops")
    authority.issue_auditor("tuv")
    return folder


@contextmanager
def serving(
    service: Service,
    certs: Path,
    wrap: Callable[[Any], Any] = lambda app: app,
    *,
    port: int = 0,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008
) -> Iterator[str]:
    """The service's address, while it runs; ``wrap`` puts something between it and its callers."""
    server = HttpServer(
        wrap(create_app(service)),
        listen("127.0.0.1", port),
        limits,
        secured=lambda: server_context(certs / "server", revoked=True),
    )
    with in_thread(server):
        yield server.url


@contextmanager
def in_thread(server: HttpServer) -> Iterator[None]:
    """Run a server beside the test."""
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + 20
    while not server.started:
        assert thread.is_alive() and time.monotonic() < end, "the service did not start"
        time.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def service_over(
    root: Path,
    half: ServerHalf,
    certs: Path,
    *,
    wrap: Callable[[Any], Any] = lambda app: app,
    port: int = 0,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008
    **settings: Any,
) -> Iterator[str]:
    """A service over a server's folder."""
    service = Service(root, half, ServiceConfig(**{**OPEN, **settings}), Authenticator(trust=Trust(certs / "server")))
    with serving(service, certs, wrap, port=port, limits=limits) as url:
        yield url


opened: list[HttpsLink] = []
"""Links that the tests of this process made; closed after each test."""


def link_of(url: str, certs: Path, name: str, *, kind: str = "clients", **more: Any) -> HttpsLink:
    opened.append(HttpsLink(url, client_context(certs / kind / name), **more))
    return opened[-1]


def connected(url: str, certs: Path, name: str = "north") -> ssl.SSLSocket:
    """A client's bare connection, to send on what no proper one would."""
    plain = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=10)
    return client_context(certs / "clients" / name).wrap_socket(plain, server_hostname="127.0.0.1")


class Everybody:
    """Each client's own link behind one: the contract's tests speak for several clients."""

    def __init__(self, url: str, certs: Path) -> None:
        self.links = {name: link_of(url, certs, name) for name in CLIENTS}

    def upload(self, client: str, shard: Path, statement: Statement, **how: Any) -> Accepted:
        return self.links[client].upload(client, shard, statement, **how)

    def withdraw(self, client: str, statement: Statement, **how: Any) -> None:
        self.links[client].withdraw(client, statement, **how)

    def standing(self, client: str) -> Standing:
        return self.links[client].standing(client)

    def largest_value(self) -> float:
        return self.links["north"].largest_value()

    def submit(self, request: Request) -> Ticket:
        return self.links[request.client].submit(request)

    def tickets(self, client: str) -> tuple[Ticket, ...]:
        return self.links[client].tickets(client)

    def predict(self, client: str, boundary: Mapping[str, Tensor]) -> Scores:
        return self.links[client].predict(client, boundary)

    def model(self, client: str) -> ModelCopy:
        return self.links[client].model(client)

    def post(self, client: str, topic: str, place: int, body: bytes) -> None:
        self.links[client].post(client, topic, place, body)

    def topic(self) -> str:
        return self.links["north"].topic()

    def posted(self, topic: str, since: int = 0) -> tuple[Posted, ...]:
        return self.links["south"].posted(topic, since)

    def receipt(self, ticket: str) -> Receipt:
        return self.links["north"].receipt(ticket)

    def ended(self, topic: str, proof: bytes = b"") -> None:
        self.links["north"].ended(topic, proof)

    def close(self) -> None:
        for link in self.links.values():
            link.close()
