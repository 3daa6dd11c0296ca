"""What operators may change, each time with their name and reason on record."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field

from splitwiper.errors import DataError, NotFoundError
from splitwiper.server import Server
from splitwiper.service.api.requests import told
from splitwiper.service.api.shapes import ApiShape, ProblemShape, TicketShape
from splitwiper.service.api.shared import service_of
from splitwiper.service.overrides import Override
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


class Kept(ApiShape):
    """A record that an operator kept the model serving: who, when and why."""

    ticket: str
    operator: str
    reason: str
    time: str
    client: str
    until: str


@router.post(
    "/keep-serving", status_code=201, responses={404: {"model": ProblemShape, "description": "No open request."}}
)
async def keep_serving(request: Request, body: Keep) -> Kept:
    """Keep the model serving despite one open request, or all of one client's; operator and reason are recorded."""
    service = service_of(request)
    operator = service.client(request)

    def keep(server: Server) -> Override:
        if bool(body.ticket) == bool(body.client):
            raise DataError("name a ticket, or a client, and not both.")
        if body.ticket:
            return service.overrides.add(server.store, body.ticket, operator, body.reason)
        if not server.store.knows(body.client):
            raise NotFoundError(f"there is no client {body.client!r}.")
        return service.overrides.add_client(body.client, operator, body.reason, hours=body.hours)

    made = await service.queries.run(keep)
    _log.warning(
        "an operator lets the model answer on",
        extra={"operator": operator, "ticket": body.ticket, "client": body.client},
    )
    return Kept(**asdict(made))


class Decision(ApiShape):
    """An operator's decision about a client, with the reason."""

    client: Client
    reason: Reason


@router.post("/evict", status_code=204, responses={404: {"model": ProblemShape, "description": "No such client."}})
async def evict(request: Request, body: Decision) -> None:
    """Erase a client's shard, which settles its open requests, and accept none from it until it is admitted again.

    The model is retrained without it. The ledger keeps a permanent record of who evicted it.
    """
    service = service_of(request)
    operator = service.client(request)

    def carry_out(server: Server) -> None:
        if not server.store.knows(body.client) and service.cases.key(body.client) is None:
            raise NotFoundError(f"there is no client {body.client!r}.")
        service.overrides.decide("evict", body.client, operator, body.reason)
        exclusion.evict(server.store, body.client, operator)
        service.uploads.end_all(body.client)

    await service.ingest.run(carry_out)  # the thread that accepts shards: none is half accepted
    _log.warning(
        "an operator evicted a client", extra={"operator": operator, "client": body.client, "reason": body.reason}
    )


@router.post("/admit", status_code=204, responses={404: {"model": ProblemShape, "description": "It is not evicted."}})
async def admit(request: Request, body: Decision) -> None:
    """Accept shards of an evicted client again. The ledger keeps a permanent record of who admitted it."""
    service = service_of(request)
    operator = service.client(request)

    def carry_out(server: Server) -> None:
        exclusion.admit(server.store, body.client, operator)
        service.overrides.decide("admit", body.client, operator, body.reason)

    await service.ingest.run(carry_out)
    _log.warning(
        "an operator admitted a client", extra={"operator": operator, "client": body.client, "reason": body.reason}
    )


@router.post("/drop-key", status_code=204, responses={404: {"model": ProblemShape, "description": "No such key."}})
async def drop_key(request: Request, body: Decision) -> None:
    """Drop a site's registered key, for example because its folder was lost, so that it can register another one.

    The ledger keeps a permanent record of who dropped it.
    """
    service = service_of(request)
    operator = service.client(request)

    def drop(server: Server) -> None:
        service.cases.drop_key(body.client, operator, body.reason)
        server.store.drop_key(body.client, operator)

    await service.queries.run(drop)
    _log.warning(
        "an operator dropped a client's key", extra={"operator": operator, "client": body.client, "reason": body.reason}
    )


@router.get("/requests")
async def requests(request: Request) -> list[TicketShape]:
    """Return every request of every client, with its stages and deadline, oldest first."""
    service = service_of(request)

    def every(server: Server) -> list[TicketShape]:
        return [told(service, server.store, one, service.cases.find(one.id)) for one in server.store.tickets()]

    return await service.queries.run(every)


@router.get("/overrides")
async def overrides(request: Request) -> list[Kept]:
    """Return every decision of an operator to keep the model serving."""
    service = service_of(request)
    return await service.queries.run(lambda _: [Kept(**asdict(one)) for one in service.overrides.listed()])
