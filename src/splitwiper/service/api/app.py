"""The application: desks, books and routes put together, and errors as answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from weakref import WeakValueDictionary

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from splitwiper import __version__
from splitwiper.errors import BusyError, SplitWiperError
from splitwiper.server import Server
from splitwiper.service import overrides
from splitwiper.service.access import Gate, Held, Rates
from splitwiper.service.api import (
    asking,
    attesting,
    auditing,
    ledger,
    operating,
    predicting,
    proving,
    talking,
    uploading,
    watching,
)
from splitwiper.service.api.copies import Copy
from splitwiper.service.api.document import PROBLEMS, Described
from splitwiper.service.api.front import CALLER, Front, answer
from splitwiper.service.attestations import Attestations
from splitwiper.service.cases import Case, Cases
from splitwiper.service.certifying import due
from splitwiper.service.desk import Desk
from splitwiper.service.heads import Heads
from splitwiper.service.identity import Principal
from splitwiper.service.metrics import Metrics
from splitwiper.service.pacing import Pacing
from splitwiper.service.settings import ServiceConfig
from splitwiper.service.shared_book import service_book
from splitwiper.service.talks import Talks
from splitwiper.service.turns import Turns
from splitwiper.service.uploads import Uploads
from splitwiper.service.witnesses import Witnesses
from splitwiper.splitting import ServerHalf
from splitwiper.store import ServerTree
from splitwiper.wire import Ticket

_log = logging.getLogger("splitwiper.service")
_HOUR = 3600.0
_MEMORY = 2 << 30
"""Bytes that all predictions under way may take; those of one client no more than are left."""
_SMALL = 256 << 20
"""The same of all other bodies, so that nobody's predictions keep anybody from asking to be forgotten."""


class Service:
    """Everything the routes work with."""

    def __init__(self, root: Path, half: ServerHalf, config: ServiceConfig, gate: Gate) -> None:
        self.root, self.config, self.gate = root, config, gate
        self.rates = Rates(config.rate, config.burst)
        self.pacing = Pacing(config.uploads, config.shards)
        self.held, self.small = Held(_MEMORY), Held(_SMALL)
        self.metrics = Metrics()
        self.book = service_book(root)
        self.book.create({})
        self.overrides = overrides.Overrides(self.book)
        self.cases = Cases(self.book)
        self.attestations = Attestations(self.book)
        self.uploads = Uploads(root / "uploads", self.book, config)
        self.talks = Talks(self.book, ServerTree(root), config.patience)
        self.witnesses = Witnesses(self.book)
        self.heads = Heads(root)

        def server() -> Server:
            return Server(ServerTree(root), half, shared=True, limits=config.limits)

        names = ("office", "oracle", "copies", "dock")
        self.office, self.oracle, self.copies, self.dock = (Desk(server, name) for name in names)
        """Small questions; predictions; copies of the model; taking shards in."""
        self.turns = Turns(config.queued)
        """Of clients at the oracle."""

        self.handed_out: WeakValueDictionary[str, Copy] = WeakValueDictionary()
        """The model as it is being handed out, by its commitment: one copy, however many read it."""
        self._busy: set[str] = set()
        self.uploads.is_busy = self._busy.__contains__

    @asynccontextmanager
    async def sending(self, upload: str) -> AsyncIterator[None]:
        """Keep other calls away from an upload meanwhile.

        Raises:
            BusyError: another one is at it.
        """
        if upload in self._busy:
            raise BusyError("another call sends to this upload: wait for it, and look where it stands.")
        self._busy.add(upload)
        try:
            yield
        finally:
            self._busy.discard(upload)

    def is_taking_in(self, client: str) -> bool:
        """Whether a call is just sending to, or finishing, an upload of a client."""
        return not self._busy.isdisjoint(self.uploads.begun(client))

    def client(self, request: Request) -> str:
        """The name of who calls; the front lets clients, or operators, come this far."""
        caller: Principal = request.scope[CALLER]
        return caller.name

    def deadline(self, ticket: Ticket, case: Case | None) -> str:
        """When a request is to be settled."""
        return due(ticket, case, self.config.deadline).isoformat(timespec="seconds")

    def _tidy(self, server: Server) -> None:
        self.uploads.expire()
        self.talks.expire(server.tree)

    async def tidying(self) -> None:
        """Give up what is over, at once and now and then; by a process that has the store, for it may be another's."""
        while True:
            try:
                await self.office.run(self._tidy)
            except (SplitWiperError, OSError) as problem:  # a full disk, say: it is tried again
                _log.warning("what is over could not be erased: %s", problem)
            await asyncio.sleep(max(1.0, min(_HOUR, self.config.patience * _HOUR / 4)))

    def close(self) -> None:
        """Finish what was begun."""
        for desk in (self.dock, self.copies, self.oracle, self.office):
            desk.close()
        self.heads.close()
        self.book.close()


def create_app(service: Service) -> FastAPI:
    """The application over a service."""

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
    for part in (uploading, asking, proving, ledger, attesting, auditing, predicting, talking, operating):
        app.include_router(part.router, responses=PROBLEMS)
    app.include_router(watching.router)
    app.add_exception_handler(SplitWiperError, _problem)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, _invalid)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, _nowhere)  # type: ignore[arg-type]
    app.add_exception_handler(ClientDisconnect, _gone)  # type: ignore[arg-type]
    app.add_middleware(
        Front,
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
    """Nobody is there to be answered; what arrived is kept."""
    return Response(status_code=499)


async def _nowhere(request: Request, problem: HTTPException) -> JSONResponse:
    """No such call."""
    told = f"there is no {request.method} of this path: /openapi.json lists all calls."
    return JSONResponse({"kind": "NotFoundError", "message": told}, problem.status_code, problem.headers)


async def _invalid(request: Request, problem: RequestValidationError) -> JSONResponse:
    """What does not fit, without repeating what was sent."""
    told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in problem.errors()[:5])
    kind = request.headers.get("content-type", "nothing")
    json = kind.startswith("application/json") or all(one["loc"] != ("body",) for one in problem.errors())
    hint = "" if json else " Send JSON, with 'Content-Type: application/json'."
    return JSONResponse({"kind": "DataError", "message": f"the call does not fit: {told}.{hint}"}, 422)
