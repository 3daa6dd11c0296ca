"""The application: wires threads, databases and routes together, and turns errors into responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from splitwiper import __version__
from splitwiper.errors import ForbiddenError, SplitWiperError
from splitwiper.server import Server
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
from splitwiper.service.api.call import ServerThread
from splitwiper.service.api.copies import Copies
from splitwiper.service.api.heads import HeadSigner
from splitwiper.service.api.metrics import Metrics
from splitwiper.service.api.middleware import AccessMiddleware
from splitwiper.service.api.openapi import PROBLEMS, Described
from splitwiper.service.connections.access import Authenticator
from splitwiper.service.connections.limits import MemoryQuota, Pacing, Places, RateLimiter, Turns
from splitwiper.service.records import overrides
from splitwiper.service.records.attestations import Attestations
from splitwiper.service.records.database import service_database
from splitwiper.service.records.negotiations import Negotiations
from splitwiper.service.records.requests import RequestRecord, RequestRecords, due
from splitwiper.service.records.uploads import Uploads
from splitwiper.service.records.witnesses import Witnesses
from splitwiper.service.settings import ServiceConfig
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

    def __init__(self, root: Path, half: ServerHalf, config: ServiceConfig, authenticator: Authenticator) -> None:
        self.root, self.config, self.authenticator = root, config, authenticator
        self.rates = RateLimiter(config.rate, config.burst)
        self.pacing = Pacing(config.uploads, config.shards)
        self.prediction_memory, self.body_memory = MemoryQuota(_MEMORY), MemoryQuota(_SMALL)
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
        self.heads = HeadSigner(root)

        # four threads, each with a server of its own: short queries, predictions, copies of the model, accepting shards
        self.queries, self.inference, self.copies, self.ingest = (
            ServerThread(Server(ServerStore(root), half, shared=True, limits=config.limits), name)
            for name in ("queries", "inference", "copies", "ingest")
        )
        # one prediction of a client is computed while its next one is received
        self.predicting = Places(2, config.queued, "predictions")
        self.turns = Turns()
        self.handed_out = Copies()

    def check_joined(self, client: str) -> None:
        """Refuse a client that has a certificate but has not joined: it has registered no key."""
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
    app.add_exception_handler(RequestValidationError, _invalid)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, _nowhere)  # type: ignore[arg-type]
    # all other errors pass through to the middleware, which answers them
    app.add_middleware(AccessMiddleware, service=service)
    return app


async def _nowhere(request: Request, problem: HTTPException) -> JSONResponse:
    """Answer a call to an unknown path or method, or one whose JSON has a number that cannot be read."""
    if problem.status_code not in (404, 405):
        return JSONResponse({"kind": "DataError", "message": "the body cannot be read as JSON."}, 422)
    what = "there is no such path" if problem.status_code == 404 else f"this path does not accept {request.method}"
    message = f"{what}: /openapi.json lists all calls."
    return JSONResponse({"kind": "NotFoundError", "message": message}, problem.status_code, problem.headers)


async def _invalid(request: Request, problem: RequestValidationError) -> JSONResponse:
    """Say which fields are invalid, without repeating their values."""
    problems: list[str] = []
    for error in problem.errors()[:5]:
        field = ".".join(map(str, error["loc"]))
        problems.append(f"{field}: {error['msg']}")
    # the body as a whole is wrong if it was not sent as JSON
    whole = any(error["loc"] == ("body",) for error in problem.errors())
    sent_json = request.headers.get("content-type", "").startswith("application/json")
    hint = " Send JSON, with 'Content-Type: application/json'." if whole and not sent_json else ""
    message = f"the call is not valid: {'; '.join(problems)}.{hint}"
    return JSONResponse({"kind": "DataError", "message": message}, 422)
