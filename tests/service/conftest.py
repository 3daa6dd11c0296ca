"""A service over an empty store, and links of clients and an operator to it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from federation.runs import halves, settings
from service.processes import Running
from service.serving import certificates, link_of, opened, service_over
from splitwiper import Federation, Label
from splitwiper.service.identity import client_context
from splitwiper.service.site.link import HttpsLink
from splitwiper.store.files import file_digest
from splitwiper.wire import Column, Spent, Statement, write_shard


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


@pytest.fixture(scope="session")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority that no test changes."""
    return certificates(tmp_path_factory.mktemp("authority") / "ca")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    """A server that is a process."""
    running = Running(tmp_path)
    yield running
    if running.process.poll() is None:
        running.stop()


@pytest.fixture
def run(tmp_path: Path) -> Federation:
    """A federation whose server's folder is served; its cut sends eight floats a row."""
    return Federation(tmp_path / "run", halves(), settings())


Serve = Callable[..., str]


@pytest.fixture
def serve(run: Federation, certs: Path) -> Iterator[Serve]:
    """Serve the federation's server with such settings."""
    with ExitStack() as stack:
        yield lambda **given: stack.enter_context(
            service_over(run.path / "server", run.halves.server, given.pop("certs", certs), **given)
        )


@pytest.fixture
def url(serve: Serve) -> str:
    return serve()


@pytest.fixture
def link(url: str, certs: Path) -> Iterator[HttpsLink]:
    """North's."""
    with closing(link_of(url, certs, "north")) as made:
        yield made


@pytest.fixture
def http(certs: Path) -> Iterator[Callable[..., httpx.Client]]:
    """Plain HTTP clients with somebody's certificate."""
    with ExitStack() as stack:

        def make(url: str, name: str = "north", kind: str = "clients", certs: Path = certs) -> httpx.Client:
            context = client_context(certs / kind / name)
            return stack.enter_context(httpx.Client(base_url=url, verify=context, trust_env=False, timeout=30))

        yield make


COMMITTED = "c0" * 32
"""What a request commits to, where nobody opens it."""


def shard(path: Path, rows: int = 6, value: float = 0.5) -> Path:
    """A shard that the server takes."""
    file = io.BytesIO()
    codes = (np.arange(rows) % 2).astype(np.int32)
    block = ({"activation": np.full((rows, 8), value, np.float32)}, codes)
    labels = [Label("", "cat"), Label("", "dog")][:rows]
    write_shard(file, columns=[Column("activation", "F32", (8,))], rows=rows, labels=labels, blocks=[block])
    path.write_bytes(file.getvalue())
    return path


def said(*tickets: str) -> Statement:
    return Statement("c", "i", "k", {}, tickets, Spent(seconds=1.0))


def announced(path: Path, **changed: Any) -> dict[str, Any]:
    """What begins an upload."""
    return {"size": path.stat().st_size, "mark": file_digest(path), "statement": plain(said()), **changed}


def plain(statement: Statement) -> dict[str, Any]:
    """A statement as the site sends it."""
    from splitwiper.service.site.link import _plain

    return _plain(statement)


def finished(path: Path) -> dict[str, Any]:
    """What ends one."""
    return {"digest": file_digest(path)}
