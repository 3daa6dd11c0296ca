"""The application: wires threads, databases and routes together, and turns errors into responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from splitwiper import __version__
from splitwiper.errors import BusyError, ForbiddenError, SplitWiperError
from splitwiper.server import Server
from splitwiper.service import overrides
from splitwiper.service.access import Authenticator, MemoryQuota, RateLimiter
from splitwiper.service.api import (
    audits,
    certificates,
    health,
    ledger,
    operators,
    predictions,
    relay,
    requests,
    uploads,
)
from splitwiper.service.api.copies import Copies
from splitwiper.service.api.middleware import AccessMiddleware, answer
from splitwiper.service.api.openapi import PROBLEMS, Described
from splitwiper.service.attestations import Attestations
from splitwiper.service.database import service_database
from splitwiper.service.heads import Heads
from splitwiper.service.metrics import Metrics
from splitwiper.service.negotiations import Negotiations
from splitwiper.service.pacing import Pacing
from splitwiper.service.requests import RequestRecord, RequestRecords, due
from splitwiper.service.server_threads import ServerThread
from splitwiper.service.settings import ServiceConfig
from splitwiper.service.turns import Places, Turns
from splitwiper.service.uploads import Uploads
from splitwiper.service.witnesses import Witnesses
from splitwiper.splitting import ServerHalf
from splitwiper.store import ServerStore
from splitwiper.wire import Ticket

_log = logging.getLogger("splitwiper.service")
_HOUR = 3600.0
_MEMORY = 2 << 30
"""Bytes that all running predictions may take together; one client may not hold more than is left free."""
_SMALL = 256 << 20
"""The same for all other request bodies. Separate, so that predictions cannot block requests to forget."""


class Service:
    """Everything that the routes share."""

    def __init__(self, root: Path, half: ServerHalf, config: ServiceConfig, gate: Authenticator) -> None:
        self.root, self.config, self.gate = root, config, gate
        self.rates = RateLimiter(config.rate, config.burst)
        self.pacing = Pacing(config.uploads, config.shards)
        self.held, self.small = MemoryQuota(_MEMORY), MemoryQuota(_SMALL)
        self.metrics = Metrics()
        self.database = service_database(root)
        self.database.create({})
        self.overrides = overrides.Overrides(self.database)
        self.requests = RequestRecords(self.database, signed_only=config.signed)
        self.keys = self.requests.keys
        self.attestations = Attestations(self.database)
        self.uploads = Uploads(root / "uploads", self.database, config)
        self.negotiations = Negotiations(self.database, ServerStore(root), config.patience)
        self.witnesses = Witnesses(self.database)
        self.heads = Heads(root)

        def server() -> Server:
            return Server(ServerStore(root), half, shared=True, limits=config.limits)

        names = ("queries", "inference", "copies", "ingest")
        self.queries, self.inference, self.copies, self.ingest = (ServerThread(server, name) for name in names)
        """Threads for short queries, predictions, copies of the model, and accepting shards."""
        self.predicting = Places(2, config.queued, "predictions")
        """One prediction of a client is computed while its next one is received."""
        self.turns = Turns()
        """Round-robin turns of clients at the inference thread."""

        self.handed_out = Copies()
        self._busy: set[str] = set()
        self.uploads.is_busy = self._busy.__contains__

    @asynccontextmanager
    async def sending(self, upload: str) -> AsyncIterator[None]:
        """Keep other calls away from an upload while this one works on it.

        Raises:
            BusyError: another call is working on it.
        """
        if upload in self._busy:
            raise BusyError("another call sends to this upload: wait for it, and look where it stands.")
        self._busy.add(upload)
        try:
            yield
        finally:
            self._busy.discard(upload)

    def is_taking_in(self, client: str) -> bool:
        """Return whether a call is sending to, or finishing, one of the client's uploads."""
        return not self._busy.isdisjoint(self.uploads.begun(client))

    def check_joined(self, client: str) -> None:
        """Refuse a client that has a certificate but has not joined.

        Raises:
            ForbiddenError: it has registered no key.
        """
        if self.keys.signed_only and self.keys.key(client) is None:
            raise ForbiddenError(
                f"client {client!r} has not joined: labels, predictions and the relay are for clients that registered "
                "a key. Run 'splitwiper join' first."
            )

    def deadline(self, ticket: Ticket, record: RequestRecord | None) -> str:
        """Return when a request must be settled."""
        return due(ticket, record, self.config.deadline).isoformat(timespec="seconds")

    def _tidy(self, server: Server) -> None:
        self.uploads.expire()
        self.negotiations.expire(server.store)

    async def tidying(self) -> None:
        """Erase expired uploads and negotiations, now and periodically. Starts only once this process has the lease."""
        while True:
            try:
                await self.queries.run(self._tidy)
            except (SplitWiperError, OSError) as problem:  # for example a full disk: retried in the next round
                _log.warning("expired uploads and negotiations could not be erased: %s", problem)
            await asyncio.sleep(max(1.0, min(_HOUR, self.config.patience * _HOUR / 4)))

    def close(self) -> None:
        """Finish pending work and close."""
        for thread in (self.ingest, self.copies, self.inference, self.queries):
            thread.close()
        self.heads.close()
        self.database.close()


def create_app(service: Service) -> FastAPI:
    """Return the FastAPI application for a service."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        tidying = asyncio.create_task(service.tidying())
        yield
        tidying.cancel()
        with suppress(asyncio.CancelledError):
            await tidying
        service.close()

    app = Described(
        title="SplitWiper",
        version=__version__,
        summary="Split learning that can forget: the server's interface.",
        lifespan=life,
    )
    app.state.service = service
    for part in (uploads, requests, certificates, ledger, audits, predictions, relay, operators):
        app.include_router(part.router, responses=PROBLEMS)
    app.include_router(health.router)
    app.add_exception_handler(SplitWiperError, _problem)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, _invalid)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, _nowhere)  # type: ignore[arg-type]
    app.add_exception_handler(ClientDisconnect, _gone)  # type: ignore[arg-type]
    app.add_middleware(
        AccessMiddleware,
        gate=service.gate,
        rates=service.rates,
        held=service.small,
        metrics=service.metrics,
        heads=service.heads,
    )
    return app


async def _problem(_: Request, problem: SplitWiperError) -> JSONResponse:
    return answer(problem)


async def _gone(_: Request, __: ClientDisconnect) -> Response:
    """Answer 499: the client disconnected; the bytes that arrived are kept."""
    return Response(status_code=499)


async def _nowhere(request: Request, problem: HTTPException) -> JSONResponse:
    """Answer a call to an unknown path or method."""
    message = f"there is no {request.method} of this path: /openapi.json lists all calls."
    return JSONResponse({"kind": "NotFoundError", "message": message}, problem.status_code, problem.headers)


async def _invalid(request: Request, problem: RequestValidationError) -> JSONResponse:
    """Say which fields are invalid, without repeating their values."""
    problems = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in problem.errors()[:5])
    kind = request.headers.get("content-type", "nothing")
    json = kind.startswith("application/json") or all(one["loc"] != ("body",) for one in problem.errors())
    hint = "" if json else " Send JSON, with 'Content-Type: application/json'."
    return JSONResponse({"kind": "DataError", "message": f"the call does not fit: {problems}.{hint}"}, 422)
