"""What operators may change, each time with their name and reason on record."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from splitwiper.errors import DataError, NotFoundError
from splitwiper.server import Server
from splitwiper.service.api.call import ApiCall, Call, ingest, queries
from splitwiper.service.api.openapi import error_response
from splitwiper.service.api.requests import ticket_shape
from splitwiper.service.api.shapes import ApiShape, TicketShape
from splitwiper.service.records.overrides import Override
from splitwiper.store import exclusion

router = APIRouter(prefix="/v1/operator", tags=["operator"])
_log = logging.getLogger("splitwiper.service")
Reason = Annotated[str, Field(min_length=8, max_length=1000)]
Client = Annotated[str, Field(min_length=1, max_length=128)]


class Keep(ApiShape):
    """A request that is not to withdraw the model while it is open, or a client, none of whose requests is to do so."""

    ticket: Annotated[str, Field(max_length=64)] = ""
    client: Annotated[str, Field(max_length=128)] = ""
    hours: Annotated[float, Field(gt=0, le=720)] = 24.0
    """How long a client's requests do not withdraw the model."""
    reason: Reason


class Decision(ApiShape):
    """An operator's decision about a client, with the reason."""

    client: Client
    reason: Reason


@router.post("/keep-serving", status_code=201, responses={404: error_response("No open request.")})
@queries
def keep_serving(server: Server, call: ApiCall, body: Keep) -> Override:
    """Keep the model serving despite one open request, or all of one client's; operator and reason are recorded."""
    overrides, operator = call.service.overrides, call.client
    if bool(body.ticket) == bool(body.client):
        raise DataError("name a ticket, or a client, and not both.")
    if body.ticket:
        override = overrides.add(server.store, body.ticket, operator, body.reason)
    elif server.store.knows(body.client):
        override = overrides.add_client(body.client, operator, body.reason, hours=body.hours)
    else:
        raise NotFoundError(f"there is no client {body.client!r}.")
    about = {"operator": operator, "ticket": body.ticket, "client": body.client}
    _log.warning("an operator lets the model answer on", extra=about)
    return override


@router.post("/evict", status_code=204, responses={404: error_response("No such client.")})
@ingest
def evict(server: Server, call: ApiCall, body: Decision) -> None:
    """Erase a client's shard, which settles its open requests, and accept none from it until it is admitted again.

    The model is retrained without it. The ledger keeps a permanent record of who evicted it.
    """
    service = call.service
    if not server.store.knows(body.client) and service.keys.key(body.client) is None:
        raise NotFoundError(f"there is no client {body.client!r}.")
    service.overrides.decide("evict", body.client, call.client, body.reason)
    exclusion.evict(server.store, body.client, call.client)
    service.uploads.end_all(body.client)
    _log_decision("an operator evicted a client", call, body)


@router.post("/admit", status_code=204, responses={404: error_response("It is not evicted.")})
@ingest
def admit(server: Server, call: ApiCall, body: Decision) -> None:
    """Accept shards of an evicted client again. The ledger keeps a permanent record of who admitted it."""
    exclusion.admit(server.store, body.client, call.client)
    call.service.overrides.decide("admit", body.client, call.client, body.reason)
    _log_decision("an operator admitted a client", call, body)


@router.post("/drop-key", status_code=204, responses={404: error_response("No such key.")})
@queries
def drop_key(server: Server, call: ApiCall, body: Decision) -> None:
    """Drop a site's registered key, for example because its folder was lost, so that it can register another one.

    The ledger keeps a permanent record of who dropped it.
    """
    call.service.keys.drop(body.client, call.client, body.reason)
    server.store.drop_key(body.client, call.client)
    _log_decision("an operator dropped a client's key", call, body)


def _log_decision(message: str, call: Call, body: Decision) -> None:
    _log.warning(message, extra={"operator": call.client, "client": body.client, "reason": body.reason})


@router.get("/requests")
@queries
def requests(server: Server, call: ApiCall) -> list[TicketShape]:
    """Return every request of every client, with its stages and deadline, oldest first."""
    service, store = call.service, server.store
    return [ticket_shape(service, store, ticket, service.requests.find(ticket.id)) for ticket in store.tickets()]


@router.get("/overrides")
@queries
def overrides(server: Server, call: ApiCall) -> list[Override]:
    """Return every decision of an operator to keep the model serving."""
    return call.service.overrides.listed()
