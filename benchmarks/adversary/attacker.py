"""The attacker: a client with a valid certificate, who sends whatever it likes."""

from __future__ import annotations

import io
import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import numpy as np

from splitwiper import Label
from splitwiper.errors import SplitWiperError
from splitwiper.service.identity import client_context
from splitwiper.service.site.link import HttpsLink
from splitwiper.service.site.own_key import OwnKey
from splitwiper.wire import Column, Request, Spent, Statement, write_shard

WIDTH = 8
COLUMN = Column("activation", "F32", (WIDTH,))
CAT_AND_DOG = (Label("", "cat"), Label("", "dog"))
_PATIENCE = 20.0


class Attacker:
    """A client's certificate, and calls by hand.

    Args:
        url: of the server.
        certs: folder of the attacker's certificate.
        folder: for its files.
        name: what the certificate says.
    """

    def __init__(self, url: str, certs: Path, folder: Path, name: str = "mallory") -> None:
        self.url, self.folder, self.name, self._certs = url, folder, name, certs
        folder.mkdir(exist_ok=True)
        self._stack = ExitStack()
        self.answers: list[str] = []
        """What the server answered, in short."""
        self.http = self._stack.enter_context(self._client())
        self.federation = str(self.http.get("/v1/federation").json()["run"])
        self.key = OwnKey(folder, self.federation)
        self.link = HttpsLink(url, client_context(certs), signer=self.key, patience=_PATIENCE)
        self._stack.callback(self.link.close)

    def __enter__(self) -> Attacker:
        return self

    def __exit__(self, kind: type[BaseException] | None, _problem: object, _trace: TracebackType | None) -> None:
        self._stack.close()

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, verify=client_context(self._certs), trust_env=False, timeout=_PATIENCE)

    # --- calls ---------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, **how: Any) -> int:
        """Make a call, and note the status; 0 where the connection broke."""
        try:
            status = self.http.request(method, path, **how).status_code
        except httpx.HTTPError:
            status = 0
        self.answers.append(f"{method} {path.partition('?')[0]}: {status}")
        return status

    def attempt(self, what: str, do: Callable[[], object]) -> bool:
        """Try something that the product's own client does, and note how it ended."""
        try:
            do()
        except (SplitWiperError, httpx.HTTPError) as problem:
            self.answers.append(f"{what}: {type(problem).__name__}: {str(problem)[:160]}")
            return False
        self.answers.append(f"{what}: accepted")
        return True

    def register(self) -> None:
        """Register a key, as joining does."""
        self.attempt("register", lambda: self.link.register(self.name))

    def ask(self, ticket: str | None = None, client: str | None = None) -> str:
        """Ask to be forgotten; returns the ticket."""
        ticket = ticket or secrets.token_hex(16)
        request = Request(ticket, client or self.name, "client", secrets.token_hex(32))
        self.attempt("request", lambda: self.link.submit(request))
        return ticket

    # --- shards --------------------------------------------------------------------------------------------

    def shard(
        self,
        values: np.ndarray[Any, np.dtype[np.float32]] | None = None,
        *,
        labels: Sequence[Label] = CAT_AND_DOG,
        rows: int = 8,
    ) -> Path:
        """Write a shard with such values, or ordinary ones."""
        if values is None:
            values = np.random.default_rng(secrets.randbits(32)).normal(size=(rows, WIDTH)).astype(np.float32)
        codes = (np.arange(len(values)) % len(labels)).astype(np.int32)
        file = io.BytesIO()
        write_shard(file, columns=[COLUMN], rows=len(values), labels=labels, blocks=[({COLUMN.name: values}, codes)])
        return self.file(file.getvalue())

    def file(self, content: bytes) -> Path:
        """Write a file of any kind."""
        path = self.folder / secrets.token_hex(4)
        path.write_bytes(content)
        return path

    def send(self, shard: Path, **said: Any) -> bool:
        """Send a shard with a statement; registers first."""
        self.register()
        statement = self.statement(**said)
        return self.attempt("upload", lambda: self.link.upload(self.name, shard, statement))

    @staticmethod
    def statement(**said: Any) -> Statement:
        """What is said with a shard, with some of it changed."""
        plain: Mapping[str, Any] = {"config": "c" * 64, "initial": "i" * 64, "key": "k" * 64, "fingerprint": {}}
        return Statement(**{**plain, "salt": secrets.token_hex(32), "spent": Spent(), **said})

    # --- connections ---------------------------------------------------------------------------------------

    def connection(self, *, tls: bool = True) -> socket.socket | None:
        """Open a connection and say nothing; None where it is refused."""
        host, _, port = self.url.removeprefix("https://").partition(":")
        try:
            plain = socket.create_connection((host, int(port)), timeout=2)
            if not tls:
                return plain
            return client_context(self._certs).wrap_socket(plain, server_hostname=host)
        except (OSError, ssl.SSLError):
            return None

    @contextmanager
    def connections(self, count: int, *, tls: bool = True, say: bytes = b"") -> Iterator[None]:
        """Keep many connections open that say little or nothing, and read nothing."""
        opened = [one for one in (self.connection(tls=tls) for _ in range(count)) if one is not None]
        for one in opened:
            with suppress(OSError):
                one.sendall(say)
        self.answers.append(f"{len(opened)} of {count} connections opened")
        try:
            yield
        finally:
            for one in opened:
                with suppress(OSError):
                    one.close()

    def pour(self, begin: bytes, again: bytes, *, most: int = 64 << 20) -> None:
        """Send over a connection of its own, the same again and again, until the server ends it; read nothing."""
        opened = self.connection()
        if opened is None:
            return
        with suppress(OSError):
            opened.sendall(begin)
            for _ in range(most // len(again)):
                opened.sendall(again)
            opened.recv(1)
        opened.close()

    @contextmanager
    def meanwhile(self, count: int, do: Callable[[httpx.Client], object]) -> Iterator[None]:
        """Do something again and again in threads, each with a connection of its own, while others work."""
        stop, done = threading.Event(), [0] * count

        def repeat(number: int) -> None:
            with self._client() as http:
                while not stop.is_set():
                    with suppress(httpx.HTTPError, SplitWiperError):
                        do(http)
                    done[number] += 1

        threads = [threading.Thread(target=repeat, args=(number,), daemon=True) for number in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(2 * _PATIENCE)
            self.answers.append(f"{sum(done)} times meanwhile")
