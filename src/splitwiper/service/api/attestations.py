"""What sites need to check a certificate themselves, and their results: openings, the model's entry, attestations."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from splitwiper.errors import NotFoundError
from splitwiper.server import Server
from splitwiper.service.api.middleware import CALLER
from splitwiper.service.api.shapes import SignedShape
from splitwiper.service.api.shared import service_of
from splitwiper.service.certificate import Log, opening

router = APIRouter(prefix="/v1", tags=["proof"])


@router.get("/requests/{ticket}/opening")
async def opened(request: Request, ticket: str) -> dict[str, Any]:
    """Open the commitments in the certificate of one of the caller's requests, for as long as the server can."""
    service = service_of(request)
    client = service.client(request)

    def found(server: Server) -> dict[str, Any]:
        if all(one.id != ticket for one in server.tickets(client)):
            raise NotFoundError(f"there is no ticket {ticket!r} of {client!r}.")
        Log.begin(server.store)
        return opening(server.store, ticket).to_dict()

    return await service.queries.run(found)


@router.get("/ledger/model")
async def model_entry(request: Request) -> dict[str, Any]:
    """Return the ledger's newest entry about a model, with the proof that it is in the ledger."""
    service = service_of(request)

    def found(server: Server) -> dict[str, Any]:
        log = Log.begin(server.store)
        return log.proof(log.newest("model"))

    return await service.queries.run(found)


@router.post("/attestations", status_code=204)
async def attest(request: Request, body: SignedShape) -> None:
    """Submit the result of a site's own recomputation: an attestation signed with the site's key."""
    service = service_of(request)
    caller = request.scope[CALLER]

    def keep(server: Server) -> None:
        federation = server.store.database.meta("run") or ""
        service.attestations.add(caller, body.model_dump(), federation=federation, cases=service.cases)

    await service.queries.run(keep)
