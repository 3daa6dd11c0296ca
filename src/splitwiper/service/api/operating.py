"""What operators may do beyond looking, each time with their name and reason on record."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field

from splitwiper.server import Server
from splitwiper.service.api.asking import told
from splitwiper.service.api.shapes import Problem, Shape, TicketShape
from splitwiper.service.api.shared import service_of

router = APIRouter(prefix="/v1/operator", tags=["operator"])
_log = logging.getLogger("splitwiper.service")


class Keep(Shape):
    """A request that is not to stop the model from answering meanwhile."""

    ticket: Annotated[str, Field(min_length=1, max_length=64)]
    reason: Annotated[str, Field(min_length=8, max_length=1000)]


class Kept(Shape):
    """That an operator let the model answer on: who, when and why."""

    ticket: str
    operator: str
    reason: str
    time: str


@router.post("/keep-serving", status_code=201, responses={404: {"model": Problem, "description": "No open request."}})
async def keep_serving(request: Request, body: Keep) -> Kept:
    """Let the model answer on although a request to forget waits. Who did so, and why, is kept for ever."""
    service = service_of(request)
    operator = service.client(request)
    made = await service.office.run(lambda s: service.overrides.add(s.tree, body.ticket, operator, body.reason))
    _log.warning("an operator lets the model answer on", extra={"operator": operator, "ticket": body.ticket})
    return Kept(**asdict(made))


class Drop(Shape):
    """A client whose key is to be dropped."""

    client: Annotated[str, Field(min_length=1, max_length=128)]
    reason: Annotated[str, Field(min_length=8, max_length=1000)]


@router.post("/drop-key", status_code=204, responses={404: {"model": Problem, "description": "No such key."}})
async def drop_key(request: Request, body: Drop) -> None:
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
