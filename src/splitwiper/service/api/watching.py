"""Health for probes, and the state for operators."""

from __future__ import annotations

import logging
from typing import Literal

from fastapi import APIRouter, Request, Response

from splitwiper import __version__
from splitwiper.errors import SplitWiperError
from splitwiper.server import Server
from splitwiper.service.api.document import PROBLEMS
from splitwiper.service.api.shapes import Problem, Shape
from splitwiper.service.api.shared import service_of
from splitwiper.service.metrics import CONTENT, LITTLE, room

router = APIRouter(tags=["state"])
_log = logging.getLogger("splitwiper.service")


class Ready(Shape):
    """The service can do its work."""

    status: Literal["ready"]
    model: bool
    room: bool


class Member(Shape):
    """A client: how often its shard changed, and how many rows the server holds of it.

    ``removed`` says who erased its shard, if it was not the client: ``training``, which failed with it, an
    ``operator``, or ``lapse``, since it asked to forget rows and then sent nothing. It is empty otherwise.
    """

    generation: int
    rows: int
    removed: str
    evicted: bool


class Waiting(Shape):
    """A request to forget that is not settled."""

    ticket: str
    client: str
    state: str
    deadline: str


class Status(Shape):
    """What an operator may know."""

    version: str
    clients: dict[str, Member]
    current: bool
    model: bool
    open: list[Waiting]
    free_bytes: int


@router.get("/healthz")
async def alive() -> dict[str, str]:
    """The process answers."""
    return {"status": "alive", "version": __version__}


@router.get("/readyz", responses={503: {"model": Problem, "description": "The store cannot be read."}})
async def ready(request: Request, response: Response) -> Ready | Problem:
    """The store can be read. Whether there is a model yet, and room on the disk, is said; it is ready without."""
    service = service_of(request)

    def look(server: Server) -> Ready:
        return Ready(status="ready", model=server.tree.model() is not None, room=room(service.root) >= LITTLE)

    try:
        return await service.office.run(look)
    except SplitWiperError as problem:
        _log.error("not ready: %s", problem)
        response.status_code = 503
        return Problem(kind="FailingError", message="the store cannot be read; its operator finds why in the log.")


@router.get(
    "/metrics",
    response_class=Response,
    responses={**PROBLEMS, 200: {"description": "Prometheus' text format.", "content": {"text/plain": {}}}},
    tags=["operator"],
)
async def metrics(request: Request) -> Response:
    """Counts for Prometheus; it needs an operator's certificate, or token."""
    service = service_of(request)
    return Response(await service.office.run(service.metrics.text), media_type=CONTENT)


@router.get("/v1/status", responses=PROBLEMS, tags=["operator"])
async def status(request: Request) -> Status:
    """What an operator may know: clients, rows, open requests; no label, no content."""
    service = service_of(request)

    def look(server: Server) -> Status:
        tree = server.tree
        held = {shard.client: shard.rows for shard in tree.shards()}

        def member(name: str, generation: int) -> Member:
            found = server.standing(name)
            rows, evicted = held.get(name, 0), bool(found.evicted)
            return Member(generation=generation, rows=rows, removed=found.by, evicted=evicted)

        return Status(
            version=__version__,
            clients={name: member(name, generation) for name, generation in tree.clients().items()},
            current=tree.is_current(),
            model=tree.model() is not None,
            open=[
                Waiting(
                    ticket=t.id, client=t.client, state=t.state, deadline=service.deadline(t, service.cases.find(t.id))
                )
                for t in tree.waiting()
            ],
            free_bytes=room(service.root),
        )

    return await service.office.run(look)
