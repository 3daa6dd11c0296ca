"""Proof for third parties: certificates, and the keys that sign them."""

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
    """Return the certificate of one of the caller's settled requests: an in-toto statement in a DSSE envelope.

    Attestations by parties that recomputed its model, if there are any, are added outside the signed statement.
    """
    service = service_of(request)
    client = service.client(request)

    def found(server: Server) -> dict[str, Any]:
        if all(one.id != ticket for one in server.tickets(client)):
            raise NotFoundError(f"there is no ticket {ticket!r} of {client!r}.")
        made = certified(server.store, service.cases, ticket, days=service.config.deadline)
        return service.attestations.beside(made, Log.of(server.store))

    return await service.ingest.run(found)


@router.get("/keys")
async def keys(request: Request) -> list[str]:
    """Return all public keys that certificates are or were signed with, as PEM."""
    service = service_of(request)

    def public(server: Server) -> list[str]:
        ring = Keyring.of(server.store)
        ring.key()  # create it now if nothing has been signed yet, so that clients pin it before they need it
        return [key.pem().decode() for key in ring.public()]

    return await service.queries.run(public)


@router.get("/keys/succession")
async def succession(request: Request) -> list[dict[str, Any]]:
    """Return statements by signing keys about each other, as DSSE envelopes: they prove a rotation or a revocation."""
    service = service_of(request)
    return await service.queries.run(lambda server: Keyring.of(server.store).statements())
