"""A small TLS server on loopback, and a way to ask it who one is."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from splitwiper.errors import SplitWiperError
from splitwiper.service.identity import Authority, Trust, server_context
from splitwiper.service.identity.certificate_builder import Signer
from splitwiper.service.identity.index import Clock, utc_now

REFUSED = (ssl.SSLError, ConnectionError)


class Server:
    """Answers every connection with who it comes from, or why that is not believed."""

    def __init__(self, folder: Path) -> None:
        self.trust, self.context = Trust(folder), server_context(folder)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.refused: list[str] = []
        self.thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Server:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(5)
        self.socket.close()

    def _serve(self) -> None:
        while True:
            try:
                raw, _ = self.socket.accept()
            except OSError:
                return
            raw.settimeout(2)
            try:
                with self.context.wrap_socket(raw, server_side=True) as connection:
                    connection.sendall(self._answer(connection.getpeercert(binary_form=True)).encode())
                    with suppress(OSError):  # who asked may have gone
                        connection.unwrap()
            except OSError as problem:
                self.refused.append(str(problem))
                raw.close()

    def _answer(self, der: bytes | None) -> str:
        try:
            return str(self.trust.principal(der))
        except SplitWiperError as problem:
            return f"refused: {problem}"

    def ask(self, context: ssl.SSLContext, host: str = "localhost") -> str:
        """What the server answers."""
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=2) as raw,
            context.wrap_socket(raw, server_hostname=host) as connection,
        ):
            return connection.recv(1000).decode() or "nothing"


def without_certificate(folder: Path) -> ssl.SSLContext:
    """A client that knows the CA and has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(folder / "ca.pem")
    return context


def mixed(folder: Path, *, ca: Path, own: Path) -> Path:
    """A folder with somebody's CA and somebody else's certificate and key."""
    folder.mkdir()
    shutil.copy(ca / "ca.pem", folder)
    for name in ("certificate.pem", "key.pem"):
        shutil.copy(own / name, folder)
    return folder


def der_of(folder: Path) -> bytes:
    """The certificate in a folder."""
    return ssl.PEM_cert_to_DER_cert((folder / "certificate.pem").read_text(encoding="utf-8"))


def away(**span: float) -> Clock:
    """A clock that is wrong by so much."""
    return lambda: utc_now() + timedelta(**span)


def signer_of(authority: Authority) -> Signer:
    """The CA's certificate and key, to make certificates that an authority would not."""
    from splitwiper.service.identity.index import Journal

    journal = Journal.read(authority.folder / "authority" / "index.jsonl")
    return authority._signer(journal)
