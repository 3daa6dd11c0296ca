"""Proof for outsiders: certificates, the keys that sign them, and the ledger's heads."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from splitwiper.errors import DataError, NotFoundError
from splitwiper.server import Server
from splitwiper.service.api.shared import service_of
from splitwiper.service.certificate import Keyring, Log
from splitwiper.service.certifying import certified

router = APIRouter(prefix="/v1", tags=["proof"])
Size = Annotated[int, Query(ge=1, le=1 << 40)]


@router.get("/requests/{ticket}/certificate")
async def certificate(request: Request, ticket: str) -> dict[str, Any]:
    """The certificate of a settled request of the client that asks: an in-toto statement in a DSSE envelope.

    Beside what is signed it has attestations by those who recomputed its model, if there are any.
    """
    service = service_of(request)
    client = service.client(request)

    def found(server: Server) -> dict[str, Any]:
        if all(one.id != ticket for one in server.tickets(client)):
            raise NotFoundError(f"there is no ticket {ticket!r} of {client!r}.")
        made = certified(server.tree, service.cases, ticket, days=service.config.deadline)
        return service.attestations.beside(made)

    return await service.dock.run(found)


@router.get("/keys")
async def keys(request: Request) -> list[str]:
    """The public keys that certificates are, or were, signed with, as PEM."""
    service = service_of(request)

    def public(server: Server) -> list[str]:
        ring = Keyring.of(server.tree)
        ring.key()  # made now, where nothing was signed yet: clients remember it before they need it
        return [key.pem().decode() for key in ring.public()]

    return await service.office.run(public)


@router.get("/keys/succession")
async def succession(request: Request) -> list[dict[str, Any]]:
    """What each signing key said of the one after it: DSSE envelopes, so that clients can follow a rotation."""
    service = service_of(request)
    return await service.office.run(lambda server: Keyring.of(server.tree).succession())


@router.get("/ledger/head")
async def head(request: Request) -> dict[str, Any]:
    """How long the ledger is, and the root of the Merkle tree over its entries."""
    service = service_of(request)
    return await service.office.run(lambda server: Log.begin(server.tree).head().to_dict())


@router.get("/ledger/consistency")
async def consistency(request: Request, old: Size, new: Size) -> list[str]:
    """The proof that the ledger of one length is the beginning of that of another."""
    service = service_of(request)

    def proof(server: Server) -> list[str]:
        log = Log.begin(server.tree)
        if not old <= new <= log.head().size:
            raise DataError(f"the ledger has {log.head().size} entries: ask for old ≤ new ≤ that.")
        return log.consistency(old, new)

    return await service.office.run(proof)
