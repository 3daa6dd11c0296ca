"""Requests to forget: submit them, and follow their progress."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter

from splitwiper.errors import NotFoundError, QuotaError
from splitwiper.server import Server
from splitwiper.service.api.call import ApiCall, Call, queries
from splitwiper.service.api.shapes import Ask, TicketShape
from splitwiper.service.records.requests import RequestRecord, stages
from splitwiper.store import ServerStore
from splitwiper.store.tickets import now
from splitwiper.wire import Request, Ticket

if TYPE_CHECKING:
    from splitwiper.service.api.app import Service

router = APIRouter(prefix="/v1", tags=["requests"])


def ticket_shape(service: Service, store: ServerStore, ticket: Ticket, record: RequestRecord | None) -> TicketShape:
    """Return a request as clients and operators see it."""
    reached, deadline = stages(store, ticket, record), service.deadline(ticket, record)
    until = ticket.settled or now()
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
        overdue=datetime.fromisoformat(until) > datetime.fromisoformat(deadline),
        signed=record is not None and record.signed is not None,
    )


@router.post("/requests", status_code=201)
@queries
def ask(server: Server, call: ApiCall, body: Ask) -> TicketShape:
    """Submit a request to forget. Submitting it again returns the same ticket."""
    service, client = call.service, call.client
    call.note(ticket=body.ticket)
    # refused before anything is stored
    _check_new(server, call, body.ticket)
    request = Request(body.ticket, client, body.level, body.commitment)
    signed = body.signed.model_dump() if body.signed else None
    record = service.requests.receive(request, signed, federation=server.store.federation)
    at_once = not service.uploads.is_taking_in(client)  # its shard would be accepted afterwards
    if at_once and server.store.shard(client) is None:  # nor may an upload begun before the request be finished
        service.uploads.end_all(client)
    ticket = server.submit(request, at_once=at_once)
    return ticket_shape(service, server.store, ticket, record)


def _check_new(server: Server, call: Call, ticket: str) -> None:
    """Check that a client may make a request, unless it repeats one that it has made."""
    mine, most = server.tickets(call.client), call.service.config.requests
    if any(known.id == ticket for known in mine):
        return
    today = datetime.now(UTC)
    since, until = (today - timedelta(days=1)).isoformat(timespec="seconds"), today.isoformat(timespec="seconds")
    # times are texts of one form and time zone, so they compare like times; later ones are from before a clock was set
    if sum(since <= known.received <= until for known in mine) >= most:
        raise QuotaError(
            f"{call.client!r} has made {most} requests within a day, and no more are accepted. Rows are suppressed at "
            "the client already; ask again tomorrow, or tell the operator."
        )
    if any(known.id == ticket for known in server.store.tickets()):
        raise NotFoundError(f"ticket {ticket!r} is not yours; draw another one.")


@router.get("/estimate")
@queries
def estimate(server: Server, call: ApiCall) -> dict[str, Any]:
    """Return the last training's time as an estimate for a request. It reveals nothing about what others hold."""
    model = server.store.model()
    return {
        "training_seconds": model.seconds if model else None,
        "waiting": len(server.store.waiting()),
        "deadline_days": call.service.config.deadline,
    }


@router.get("/requests")
@queries
def listed(server: Server, call: ApiCall) -> list[TicketShape]:
    """Return every request of the caller, oldest first."""
    service, records, tickets = call.service, call.service.requests.of(call.client), server.tickets(call.client)
    return [ticket_shape(service, server.store, ticket, records.get(ticket.id)) for ticket in tickets]


@router.get("/requests/{ticket}/receipt")
@queries
def receipt(server: Server, call: ApiCall, ticket: str) -> dict[str, Any]:
    """Return the receipt of one of the caller's requests."""
    call.check_ticket(server, ticket)
    return server.store.receipt(ticket).to_dict()
