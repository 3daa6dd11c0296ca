"""Proof: certificates and what opens them, the keys that sign them, and attestations of sites."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from splitwiper.server import Server
from splitwiper.service.api.call import ApiCall, ingest, queries
from splitwiper.service.api.shapes import SignedShape
from splitwiper.service.certificate import Keyring, Log, opening
from splitwiper.service.records.requests import certified

router = APIRouter(prefix="/v1", tags=["proof"])


@router.get("/requests/{ticket}/certificate")
@ingest
def certificate(server: Server, call: ApiCall, ticket: str) -> dict[str, Any]:
    """Return the certificate of one of the caller's settled requests: an in-toto statement in a DSSE envelope.

    Attestations by parties that recomputed its model, if there are any, are added outside the signed statement.
    """
    call.check_ticket(server, ticket)
    service = call.service
    issued = certified(server.store, service.requests, ticket, days=service.config.deadline)
    return service.attestations.beside(issued, Log.of(server.store))


@router.get("/requests/{ticket}/opening")
@queries
def opened(server: Server, call: ApiCall, ticket: str) -> dict[str, Any]:
    """Open the commitments in the certificate of one of the caller's requests, for as long as the server can."""
    call.check_ticket(server, ticket)
    # a store that has never shown its ledger has no salt yet
    Log.begin(server.store)
    return opening(server.store, ticket).to_dict()


@router.get("/keys")
@queries
def keys(server: Server, call: ApiCall) -> list[str]:
    """Return all public keys that certificates are or were signed with, as PEM."""
    ring = Keyring.of(server.store)
    ring.key()  # create it now if nothing has been signed yet, so that clients pin it before they need it
    return [key.pem().decode() for key in ring.public()]


@router.get("/keys/succession")
@queries
def succession(server: Server, call: ApiCall) -> list[dict[str, Any]]:
    """Return statements by signing keys about each other, as DSSE envelopes: they prove a rotation or a revocation."""
    return Keyring.of(server.store).statements()


@router.post("/attestations", status_code=204)
@queries
def attest(server: Server, call: ApiCall, body: SignedShape) -> None:
    """Submit the result of a site's own recomputation: an attestation signed with the site's key."""
    keep_attestation(server, call, body)


def keep_attestation(server: Server, call: ApiCall, body: SignedShape) -> None:
    """Store the caller's attestation, if it is one and the caller's own key signed it."""
    federation, keys = server.store.federation, call.service.keys
    call.service.attestations.add(call.caller, body.model_dump(), federation=federation, keys=keys)
