"""A federation over real sockets in one process: a served store, joined sites, and an auditor."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from service.processes import MODEL, data
from service.serving import service_over
from splitwiper.config import ClientConfig, Config, ModelConfig, ServerConfig
from splitwiper.server import Server
from splitwiper.service.audit import AuditConfig, Audited, audit
from splitwiper.service.certificate import PublicKey, read_public
from splitwiper.service.settings import ServiceConfig
from splitwiper.service.site import Certified, Site, SiteConfig, join
from splitwiper.service.storing import ServerSettings, open_store
from splitwiper.store import ServerStore

EPOCHS = 4
Lie = Callable[[bytes], tuple[int, Iterable[bytes]]]
"""Turns the body of an honest answer into another status and body."""


class Scene:
    """Two sites that have joined and learned, and a server whose worker is called by hand.

    Args:
        folder: for everything.
        certs: an authority's folder.
        transcript: whether the server keeps one.
        codec: settings of the codec, on both sides.
        parts: settings of the server's training.
        service: settings of the service.

    Attributes:
        calls: methods and paths of all calls so far.
        lies: other answers than the honest ones, by path.
        gates: the next call with a method waits until its event is set.
    """

    def __init__(
        self,
        folder: Path,
        certs: Path,
        *,
        transcript: bool = True,
        codec: Mapping[str, Any] | None = None,
        parts: Mapping[str, Any] | None = None,
        **service: Any,
    ) -> None:
        self.folder, self.certs, self._stack = folder, certs, ExitStack()
        self.codec = dict(codec or {})
        config = Config(
            seed=5,
            model=ModelConfig(**MODEL),
            server=ServerConfig(epochs=EPOCHS, batch=16, threads=1, transcript=transcript, **(parts or {})),
        )
        self.store = folder / "store"
        self.halves = open_store(self.store, ServerSettings(config, ServiceConfig(**self.codec), folder))
        self._wanted = {"signed": True, "probabilities": False, **service}
        self.calls: list[str] = []
        self.lies: dict[str, Lie] = {}
        self.gates: dict[str, threading.Event] = {}
        self.url = ""
        self.start()
        self.rows = data()
        self.north, self.south = (self._joined(name) for name in ("north", "south"))
        self.train()

    def start(self) -> None:
        """Serve the store, always at the same address."""

        def noting(app: Any) -> Any:
            async def noted(scope: Any, receive: Any, send: Any) -> None:
                if scope["type"] == "http":
                    self.calls.append(f"{scope['method']} {scope['path']}")
                    gate = self.gates.pop(scope["method"], None)
                    while gate is not None and not gate.is_set():
                        await asyncio.sleep(0.01)
                lie = self.lies.get(scope.get("path", ""))
                await app(scope, receive, send if lie is None else _lying(send, lie))

            return noted

        port = int(self.url.rpartition(":")[2]) if self.url else 0
        self._service = ExitStack()
        self.url = self._service.enter_context(
            service_over(self.store, self.halves.server, self.certs, wrap=noting, port=port, **self._wanted)
        )

    def stop(self) -> None:
        """Serve it no longer."""
        self._service.close()

    def replace_store(self, other: Path) -> None:
        """Stop, put a copy of another store in place, and start again."""
        self.stop()
        shutil.rmtree(self.store)
        shutil.copytree(other, self.store)
        self.start()

    def _joined(self, name: str) -> Site:
        certs = str(self.certs / "clients" / name)
        settings = SiteConfig(name=name, url=self.url, certs=certs, spot_check=1.0, model=ModelConfig(**MODEL))
        own = ClientConfig(epochs=2, batch=8, head_width=4, threads=1, **self.codec)
        site = join(self.folder / name, settings, own)
        self._stack.callback(site.close)
        site.learn(self.rows[name])
        return site

    @property
    def server_store(self) -> ServerStore:
        return ServerStore(self.store)

    def train(self) -> None:
        """What the worker does."""
        server = Server(ServerStore(self.store), self.halves.server)
        server.train()
        server.store.database.close()

    def forget(self, count: int = 3) -> str:
        """North forgets some rows; its request is settled."""
        ticket = self.north.forget(samples=list(self.north.client.holdings.ids())[:count])
        self.north.settle(patience=5)
        self.train()
        return ticket

    def certificate(self, ticket: str) -> Certified:
        return self.north.certificate(ticket)

    def audit(self, *, sites: str = "", parts: tuple[str, ...] = (), **how: Any) -> Audited:
        certs, model = str(self.certs / "auditors" / "tuv"), ModelConfig(**MODEL)
        config = AuditConfig(name="tuv", url=self.url, certs=certs, sites=sites, model=model, parts=parts)
        return audit(config, self.folder, self.folder / "audit", **how)

    def keys(self) -> tuple[PublicKey, ...]:
        """Those of the server, as north remembers them."""
        return read_public(self.folder / "north" / "north" / "server-keys")

    def close(self) -> None:
        self._stack.close()
        self.stop()


def found(proof: Certified) -> dict[str, str]:
    """Outcomes by what was looked at."""
    return {finding.what: finding.outcome for finding in proof.checked.checks}


def _lying(send: Any, lie: Lie) -> Any:
    """Send another answer under the headers of the honest one, the signed head of the ledger included."""
    begun, body = dict[str, Any](), bytearray()

    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            begun.update(message)
            return
        body.extend(message.get("body", b""))
        if message.get("more_body"):
            return
        status, pieces = lie(bytes(body))
        kept = [(name, value) for name, value in begun["headers"] if name.lower() != b"content-length"]
        await send({**begun, "status": status, "headers": kept})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})

    return sent
