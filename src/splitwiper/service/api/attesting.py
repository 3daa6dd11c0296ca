"""What lets sites check a certificate themselves, and what they found: openings, the model's entry, attestations."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from splitwiper.errors import NotFoundError
from splitwiper.server import Server
from splitwiper.service.api.front import CALLER
from splitwiper.service.api.shapes import SignedShape
from splitwiper.service.api.shared import service_of
from splitwiper.service.certificate import Log, opening

router = APIRouter(prefix="/v1", tags=["proof"])


@router.get("/requests/{ticket}/opening")
async def opened(request: Request, ticket: str) -> dict[str, Any]:
    """What opens the commitments in the certificate of a request of the client that asks, while they stand."""
    service = service_of(request)
    client = service.client(request)

    def found(server: Server) -> dict[str, Any]:
        if all(one.id != ticket for one in server.tickets(client)):
            raise NotFoundError(f"there is no ticket {ticket!r} of {client!r}.")
        Log.begin(server.tree)
        return opening(server.tree, ticket).to_dict()

    return await service.office.run(found)


@router.get("/ledger/model")
async def model_entry(request: Request) -> dict[str, Any]:
    """The ledger's newest entry about a model, with the proof that it is in the ledger."""
    service = service_of(request)

    def found(server: Server) -> dict[str, Any]:
        log = Log.begin(server.tree)
        return log.proof(log.newest("model"))

    return await service.office.run(found)


@router.post("/attestations", status_code=204)
async def attest(request: Request, body: SignedShape) -> None:
    """Hand over what the site recomputed: an attestation that its own key signed."""
    service = service_of(request)
    caller = request.scope[CALLER]

    def keep(server: Server) -> None:
        federation = server.tree.book.meta("run") or ""
        service.attestations.add(caller, body.model_dump(), federation=federation, cases=service.cases)

    await service.office.run(keep)
