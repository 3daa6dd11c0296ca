"""Requests to forget: ask, and see where a request stands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request

from splitwiper.errors import NotFoundError, QuotaError
from splitwiper.server import Server
from splitwiper.service.api.shapes import Ask, TicketShape
from splitwiper.service.api.shared import note, service_of
from splitwiper.service.cases import Case
from splitwiper.service.stages import stages
from splitwiper.store import ServerTree
from splitwiper.store.tickets import now
from splitwiper.wire import Request as Asked
from splitwiper.wire import Ticket

if TYPE_CHECKING:
    from splitwiper.service.api.app import Service

router = APIRouter(prefix="/v1", tags=["requests"])


def told(service: Service, tree: ServerTree, ticket: Ticket, case: Case | None) -> TicketShape:
    """A request as clients and operators see it."""
    reached, deadline = stages(tree, ticket, case), service.deadline(ticket, case)
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
    """Ask to be forgotten. A request may be repeated: the ticket is the same."""
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
            if any(ticket.id == body.ticket for ticket in server.tree.tickets()):
                raise NotFoundError(f"ticket {body.ticket!r} is not yours; draw another one.")
        asked = Asked(body.ticket, client, body.level, body.commitment)
        signed = body.signed.model_dump() if body.signed else None
        federation = server.tree.book.meta("run") or ""
        case = service.cases.receive(asked, signed, federation=federation, must=service.config.signed)
        at_once = not service.is_taking_in(client)  # what is being taken in would become a shard after its end
        if at_once and server.tree.shard(client) is None:  # nor may what was begun before the request
            service.uploads.end_all(client)
        ticket = server.submit(asked, at_once=at_once)
        return told(service, server.tree, ticket, case)

    return await service.office.run(submit)


@router.get("/estimate")
async def estimate(request: Request) -> dict[str, Any]:
    """What a request will take the server: the last training's time. It tells nothing of what others hold."""
    service = service_of(request)

    def told(server: Server) -> dict[str, Any]:
        model = server.tree.model()
        return {
            "training_seconds": model.seconds if model else None,
            "waiting": len(server.tree.waiting()),
            "deadline_days": service.config.deadline,
        }

    return await service.office.run(told)


@router.get("/requests")
async def listed(request: Request) -> list[TicketShape]:
    """Every request of the client that asks, oldest first."""
    service = service_of(request)
    client = service.client(request)

    def mine(server: Server) -> list[TicketShape]:
        cases = service.cases.of(client)
        return [told(service, server.tree, ticket, cases.get(ticket.id)) for ticket in server.tickets(client)]

    return await service.office.run(mine)


@router.get("/requests/{ticket}/receipt")
async def receipt(request: Request, ticket: str) -> dict[str, Any]:
    """What was done for a request of the client that asks."""
    service = service_of(request)
    client = service.client(request)

    def found(server: Server) -> dict[str, Any]:
        if all(one.id != ticket for one in server.tickets(client)):
            raise NotFoundError(f"there is no ticket {ticket!r} of {client!r}.")
        return server.tree.receipt(ticket).to_dict()

    return await service.office.run(found)
