"""Proof for outsiders: certificates, and the keys that sign them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from splitwiper.errors import NotFoundError
from splitwiper.server import Server
from splitwiper.service.api.shared import service_of
from splitwiper.service.certificate import Keyring, Log
from splitwiper.service.certifying import certified

router = APIRouter(prefix="/v1", tags=["proof"])


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
        return service.attestations.beside(made, Log.of(server.tree))

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
    """What signing keys said of each other: DSSE envelopes, so that clients can follow a rotation or a revocation."""
    service = service_of(request)
    return await service.office.run(lambda server: Keyring.of(server.tree).statements())
