"""Requests to forget: ask, and see where a request stands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Request

from splitwiper.errors import NotFoundError, QuotaError
from splitwiper.server import Server
from splitwiper.service.api.shapes import Ask, TicketShape
from splitwiper.service.api.shared import service_of
from splitwiper.wire import Request as Asked
from splitwiper.wire import Ticket

router = APIRouter(prefix="/v1", tags=["requests"])


@router.post("/requests", status_code=201)
async def ask(request: Request, body: Ask) -> TicketShape:
    """Ask to be forgotten. A request may be repeated: the ticket is the same."""
    service = service_of(request)
    client = service.client(request)

    def submit(server: Server) -> Ticket:
        mine = server.tickets(client)
        since = (datetime.now(UTC) - timedelta(days=1)).isoformat(timespec="seconds")
        if all(ticket.id != body.ticket for ticket in mine):
            if sum(ticket.received >= since for ticket in mine) >= service.config.requests:
                raise QuotaError(
                    f"{client!r} made {service.config.requests} requests within a day, which is all that is taken. "
                    "Rows are suppressed at the client already; ask again tomorrow, or tell the operator."
                )
            if any(ticket.id == body.ticket for ticket in server.tree.tickets()):
                raise NotFoundError(f"ticket {body.ticket!r} is not yours; draw another one.")
        return server.submit(Asked(body.ticket, client, body.level))

    ticket = await service.office.run(submit)
    return TicketShape.of(ticket, service.deadline(ticket.received))


@router.get("/estimate")
async def estimate(request: Request) -> dict[str, Any]:
    """What a request will take the server: the last training's time, and how many rows it was of."""
    service = service_of(request)

    def told(server: Server) -> dict[str, Any]:
        model = server.tree.model()
        waiting = sum(ticket.state != "settled" for ticket in server.tree.tickets())
        return {
            "training_seconds": model.seconds if model else None,
            "rows": sum(shard.rows for shard in server.tree.shards()),
            "waiting": waiting,
            "deadline_days": service.config.deadline,
        }

    return await service.office.run(told)


@router.get("/requests")
async def listed(request: Request) -> list[TicketShape]:
    """Every request of the client that asks, oldest first."""
    service = service_of(request)
    client = service.client(request)
    found = await service.office.run(lambda server: server.tickets(client))
    return [TicketShape.of(ticket, service.deadline(ticket.received)) for ticket in found]


@router.get("/requests/{ticket}/receipt")
async def receipt(request: Request, ticket: str) -> dict[str, Any]:
    """What was done for a request of the client that asks."""
    service = service_of(request)
    client = service.client(request)

    def found(server: Server) -> dict[str, Any]:
        if all(one.id != ticket for one in server.tickets(client)):
            raise NotFoundError(f"there is no ticket {ticket!r} of {client!r}.")
        values = server.tree.receipt(ticket).to_dict()
        return {**values, "spent": {name: spent for name, spent in values["spent"].items() if name == client}}

    return await service.office.run(found)
