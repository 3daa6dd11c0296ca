"""Health for probes, and status for operators."""

from __future__ import annotations

import logging
from typing import Literal

from fastapi import APIRouter, Response

from splitwiper import __version__
from splitwiper.errors import SplitWiperError
from splitwiper.server import Server
from splitwiper.service.api.call import ApiCall, queries
from splitwiper.service.api.metrics import CONTENT, LITTLE, room
from splitwiper.service.api.openapi import PROBLEMS, error_response
from splitwiper.service.api.shapes import ApiShape, ProblemShape

router = APIRouter(tags=["state"])
_log = logging.getLogger("splitwiper.service")


class Ready(ApiShape):
    """Readiness of the service."""

    status: Literal["ready"]
    model: bool
    room: bool


class Member(ApiShape):
    """A client: how often its shard changed, and how many of its rows the server holds.

    ``removed`` says who erased its shard, unless the client did so itself: ``training`` (it failed with the shard),
    ``operator``, ``lapse`` (the client asked to forget rows and then sent nothing), or ``pace`` (it sent shard after
    shard while others waited). It is empty otherwise.
    """

    generation: int
    rows: int
    removed: str
    evicted: bool


class Waiting(ApiShape):
    """A request to forget that has not been settled."""

    ticket: str
    client: str
    state: str
    deadline: str


class ServiceStatus(ApiShape):
    """The service's status for operators."""

    version: str
    clients: dict[str, Member]
    current: bool
    model: bool
    open: list[Waiting]
    free_bytes: int


@router.get("/healthz")
async def alive() -> dict[str, str]:
    """Answer that the process is alive."""
    return {"status": "alive", "version": __version__}


@router.get("/readyz", responses={503: error_response("The store cannot be read.")})
async def ready(call: ApiCall, response: Response) -> Ready | ProblemShape:
    """Answer whether the store can be read. Without a model, or with a full disk, it is ready too, and says so."""
    service = call.service
    try:
        model = await service.queries.run(lambda server: server.store.model())
        return Ready(status="ready", model=model is not None, room=room(service.root) >= LITTLE)
    except SplitWiperError as problem:
        # a probe gets no details: it needs no identity, so anybody may ask
        _log.error("not ready: %s", problem)
        response.status_code = 503
        message = "the store cannot be read; its operator finds the reason in the log."
        return ProblemShape(kind="FailingError", message=message)


@router.get(
    "/metrics",
    response_class=Response,
    responses={**PROBLEMS, 200: {"description": "Prometheus' text format.", "content": {"text/plain": {}}}},
    tags=["operator"],
)
@queries
def metrics(server: Server, call: ApiCall) -> Response:
    """Return Prometheus metrics; requires an operator's certificate or token."""
    return Response(call.service.metrics.text(server), media_type=CONTENT)


@router.get("/v1/status", responses=PROBLEMS, tags=["operator"])
@queries
def status(server: Server, call: ApiCall) -> ServiceStatus:
    """Return clients, row counts and open requests for operators; no labels, no data."""
    service, store = call.service, server.store
    rows = {shard.client: shard.rows for shard in store.shards()}
    clients: dict[str, Member] = {}
    for name, generation in store.clients().items():
        standing = server.standing(name)
        clients[name] = Member(
            generation=generation, rows=rows.get(name, 0), removed=standing.by, evicted=bool(standing.evicted)
        )
    waiting: list[Waiting] = []
    for ticket in store.waiting():
        deadline = service.deadline(ticket, service.requests.find(ticket.id))
        waiting.append(Waiting(ticket=ticket.id, client=ticket.client, state=ticket.state, deadline=deadline))
    return ServiceStatus(
        version=__version__,
        clients=clients,
        current=store.is_current(),
        model=store.model() is not None,
        open=waiting,
        free_bytes=room(service.root),
    )
