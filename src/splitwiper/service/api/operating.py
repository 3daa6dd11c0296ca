"""What operators may do beyond looking, each time with their name and reason on record."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field

from splitwiper.errors import DataError, NotFoundError
from splitwiper.server import Server
from splitwiper.service.api.asking import told
from splitwiper.service.api.shapes import Problem, Shape, TicketShape
from splitwiper.service.api.shared import service_of
from splitwiper.service.overrides import Override
from splitwiper.store import exclusion

router = APIRouter(prefix="/v1/operator", tags=["operator"])
_log = logging.getLogger("splitwiper.service")


Reason = Annotated[str, Field(min_length=8, max_length=1000)]
Client = Annotated[str, Field(min_length=1, max_length=128)]


class Keep(Shape):
    """A request that is not to stop the model from answering meanwhile; or a client, none of whose requests is."""

    ticket: Annotated[str, Field(max_length=64)] = ""
    client: Annotated[str, Field(max_length=128)] = ""
    hours: Annotated[float, Field(gt=0, le=720)] = 24.0
    """How long the requests of a client do not stop the model."""
    reason: Reason


class Kept(Shape):
    """That an operator let the model answer on: who, when and why."""

    ticket: str
    operator: str
    reason: str
    time: str
    client: str
    until: str


@router.post("/keep-serving", status_code=201, responses={404: {"model": Problem, "description": "No open request."}})
async def keep_serving(request: Request, body: Keep) -> Kept:
    """Let the model answer on although a request to forget waits, or any of one client's. Who, and why, is kept."""
    service = service_of(request)
    operator = service.client(request)

    def keep(server: Server) -> Override:
        if bool(body.ticket) == bool(body.client):
            raise DataError("name a ticket, or a client, and not both.")
        if body.ticket:
            return service.overrides.add(server.tree, body.ticket, operator, body.reason)
        if not server.tree.knows(body.client):
            raise NotFoundError(f"there is no client {body.client!r}.")
        return service.overrides.add_client(body.client, operator, body.reason, hours=body.hours)

    made = await service.office.run(keep)
    _log.warning(
        "an operator lets the model answer on",
        extra={"operator": operator, "ticket": body.ticket, "client": body.client},
    )
    return Kept(**asdict(made))


class Decision(Shape):
    """A client that an operator decides about, and why."""

    client: Client
    reason: Reason


@router.post("/evict", status_code=204, responses={404: {"model": Problem, "description": "No such client."}})
async def evict(request: Request, body: Decision) -> None:
    """Erase a client's shard, settle its open requests by that, and take no other shard of it until it is admitted.

    The model is trained anew without it. Who did so is in the ledger, for ever.
    """
    service = service_of(request)
    operator = service.client(request)

    def carry_out(server: Server) -> None:
        if not server.tree.knows(body.client) and service.cases.key(body.client) is None:
            raise NotFoundError(f"there is no client {body.client!r}.")
        service.overrides.decide("evict", body.client, operator, body.reason)
        exclusion.evict(server.tree, body.client, operator)
        service.uploads.end_all(body.client)

    await service.dock.run(carry_out)  # where shards are taken in: none is between being checked and being accepted
    _log.warning(
        "an operator evicted a client", extra={"operator": operator, "client": body.client, "reason": body.reason}
    )


@router.post("/admit", status_code=204, responses={404: {"model": Problem, "description": "It is not evicted."}})
async def admit(request: Request, body: Decision) -> None:
    """Take shards of an evicted client again. Who did so is in the ledger, for ever."""
    service = service_of(request)
    operator = service.client(request)

    def carry_out(server: Server) -> None:
        exclusion.admit(server.tree, body.client, operator)
        service.overrides.decide("admit", body.client, operator, body.reason)

    await service.dock.run(carry_out)
    _log.warning(
        "an operator admitted a client", extra={"operator": operator, "client": body.client, "reason": body.reason}
    )


@router.post("/drop-key", status_code=204, responses={404: {"model": Problem, "description": "No such key."}})
async def drop_key(request: Request, body: Decision) -> None:
    """Drop the key that a site registered, say because its folder was lost; it can register another one then.

    Who did so is in the ledger, for ever.
    """
    service = service_of(request)
    operator = service.client(request)

    def drop(server: Server) -> None:
        service.cases.drop_key(body.client, operator, body.reason)
        server.tree.drop_key(body.client, operator)

    await service.office.run(drop)
    _log.warning(
        "an operator dropped a client's key", extra={"operator": operator, "client": body.client, "reason": body.reason}
    )


@router.get("/requests")
async def requests(request: Request) -> list[TicketShape]:
    """Every request of every client, with its stages and deadline, oldest first."""
    service = service_of(request)

    def every(server: Server) -> list[TicketShape]:
        return [told(service, server.tree, one, service.cases.find(one.id)) for one in server.tree.tickets()]

    return await service.office.run(every)


@router.get("/overrides")
async def overrides(request: Request) -> list[Kept]:
    """Every time that an operator let the model answer on."""
    service = service_of(request)
    return await service.office.run(lambda _: [Kept(**asdict(one)) for one in service.overrides.listed()])
