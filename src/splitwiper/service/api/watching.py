"""Health for probes, and the state for operators."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from splitwiper import __version__
from splitwiper.server import Server
from splitwiper.service.api.shared import service_of
from splitwiper.service.metrics import CONTENT

router = APIRouter(tags=["state"])


@router.get("/healthz")
async def alive() -> dict[str, str]:
    """The process answers."""
    return {"status": "alive", "version": __version__}


@router.get("/readyz", responses={503: {"description": "not ready"}})
async def ready(request: Request) -> JSONResponse:
    """The store can be read."""
    service = service_of(request)

    def look(server: Server) -> dict[str, Any]:
        return {"status": "ready", "model": server.tree.model() is not None}

    return JSONResponse(await service.office.run(look))


@router.get("/metrics", response_class=Response, tags=["operator"])
async def metrics(request: Request) -> Response:
    """Counts for Prometheus; it needs an operator's certificate, or token."""
    service = service_of(request)
    return Response(await service.office.run(service.metrics.text), media_type=CONTENT)


@router.get("/v1/status", tags=["operator"])
async def status(request: Request) -> dict[str, Any]:
    """What an operator may know: clients, rows, open requests; no label, no content."""
    service = service_of(request)

    def look(server: Server) -> dict[str, Any]:
        tree = server.tree
        shards = {shard.client: {"generation": shard.generation, "rows": shard.rows} for shard in tree.shards()}
        open_ = [ticket for ticket in tree.tickets() if ticket.state != "settled"]
        return {
            "version": __version__,
            "clients": {name: shards.get(name, {"generation": n, "rows": 0}) for name, n in tree.clients().items()},
            "current": tree.is_current(),
            "model": tree.model() is not None,
            "open": [
                {"ticket": t.id, "client": t.client, "state": t.state, "deadline": service.deadline(t.received)}
                for t in open_
            ],
        }

    return await service.office.run(look)
