"""Requests to forget: submit them, and follow their progress."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request

from splitwiper.errors import NotFoundError, QuotaError
from splitwiper.server import Server
from splitwiper.service.api.shapes import Ask, TicketShape
from splitwiper.service.api.shared import note, service_of
from splitwiper.service.request_stages import stages
from splitwiper.service.requests import RequestRecord
from splitwiper.store import ServerStore
from splitwiper.store.tickets import now
from splitwiper.wire import Request as Asked
from splitwiper.wire import Ticket

if TYPE_CHECKING:
    from splitwiper.service.api.app import Service

router = APIRouter(prefix="/v1", tags=["requests"])


def told(service: Service, store: ServerStore, ticket: Ticket, case: RequestRecord | None) -> TicketShape:
    """Return a request as clients and operators see it."""
    reached, deadline = stages(store, ticket, case), service.deadline(ticket, case)
    ended = ticket.settled or now()
    return TicketShape(
        id=ticket.id,
        client=ticket.client,
        level=ticket.level,
        state=ticket.state,
        stage=list(reached)[-1],
        stages=reached,
        received=ticket.received,
        commitment=ticket.commitment,
        deadline=deadline,
        overdue=datetime.fromisoformat(ended) > datetime.fromisoformat(deadline),
        signed=case is not None and case.signed is not None,
    )


@router.post("/requests", status_code=201)
async def ask(request: Request, body: Ask) -> TicketShape:
    """Submit a request to forget. Submitting it again returns the same ticket."""
    service = service_of(request)
    client = service.client(request)
    note(request, ticket=body.ticket)

    def submit(server: Server) -> TicketShape:
        mine = server.tickets(client)
        today = datetime.now(UTC)
        since, until = ((today - timedelta(days=days)).isoformat(timespec="seconds") for days in (1, 0))
        if all(ticket.id != body.ticket for ticket in mine):
            if sum(since <= ticket.received <= until for ticket in mine) >= service.config.requests:
                raise QuotaError(
                    f"{client!r} made {service.config.requests} requests within a day, which is all that is taken. "
                    "Rows are suppressed at the client already; ask again tomorrow, or tell the operator."
                )
            if any(ticket.id == body.ticket for ticket in server.store.tickets()):
                raise NotFoundError(f"ticket {body.ticket!r} is not yours; draw another one.")
        asked = Asked(body.ticket, client, body.level, body.commitment)
        signed = body.signed.model_dump() if body.signed else None
        federation = server.store.database.meta("run") or ""
        case = service.cases.receive(asked, signed, federation=federation, must=service.config.signed)
        at_once = not service.is_taking_in(client)  # its shard would be accepted afterwards
        if at_once and server.store.shard(client) is None:  # nor may an upload begun before the request be finished
            service.uploads.end_all(client)
        ticket = server.submit(asked, at_once=at_once)
        return told(service, server.store, ticket, case)

    return await service.queries.run(submit)


@router.get("/estimate")
async def estimate(request: Request) -> dict[str, Any]:
    """Return the last training's time as an estimate for a request. It reveals nothing about what others hold."""
    service = service_of(request)

    def told(server: Server) -> dict[str, Any]:
        model = server.store.model()
        return {
            "training_seconds": model.seconds if model else None,
            "waiting": len(server.store.waiting()),
            "deadline_days": service.config.deadline,
        }

    return await service.queries.run(told)


@router.get("/requests")
async def listed(request: Request) -> list[TicketShape]:
    """Return every request of the caller, oldest first."""
    service = service_of(request)
    client = service.client(request)

    def mine(server: Server) -> list[TicketShape]:
        cases = service.cases.of(client)
        return [told(service, server.store, ticket, cases.get(ticket.id)) for ticket in server.tickets(client)]

    return await service.queries.run(mine)


@router.get("/requests/{ticket}/receipt")
async def receipt(request: Request, ticket: str) -> dict[str, Any]:
    """Return the receipt of one of the caller's requests: what was done for it."""
    service = service_of(request)
    client = service.client(request)

    def found(server: Server) -> dict[str, Any]:
        if all(one.id != ticket for one in server.tickets(client)):
            raise NotFoundError(f"there is no ticket {ticket!r} of {client!r}.")
        return server.store.receipt(ticket).to_dict()

    return await service.queries.run(found)
