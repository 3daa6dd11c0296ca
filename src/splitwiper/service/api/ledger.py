"""The ledger for third parties: signed heads, proofs between them, sites' countersignatures, restored backups."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field

from splitwiper.errors import DataError
from splitwiper.server import Server
from splitwiper.service.api.shapes import ApiShape, SignatureShape
from splitwiper.service.api.shared import service_of
from splitwiper.service.certificate import Keyring, Log, SignedHead, TreeHead
from splitwiper.service.certificate.restoring import shown
from splitwiper.store.tickets import now

router = APIRouter(prefix="/v1/ledger", tags=["proof"])
Size = Annotated[int, Query(ge=1, le=1 << 40)]


class EnvelopeShape(ApiShape):
    """A DSSE envelope."""

    payload: Annotated[str, Field(max_length=4096)]
    payloadType: Annotated[str, Field(max_length=100)]
    signatures: Annotated[list[SignatureShape], Field(min_length=1, max_length=4)]


class Witnessed(ApiShape):
    """A ledger head that the server signed, and a site's countersignature of it."""

    head: EnvelopeShape
    countersignature: EnvelopeShape


class WitnessShape(Witnessed):
    """A countersigned head as the server relays it, with the site's name and the time it arrived."""

    site: str
    received: str


@router.get("/head")
async def head(request: Request, size: Annotated[int | None, Query(ge=1, le=1 << 40)] = None) -> dict[str, Any]:
    """Return the ledger's size and root, now or at ``size`` entries, in plain and as a signed DSSE envelope."""
    service = service_of(request)

    def signed(server: Server) -> dict[str, Any]:
        log = Log.begin(server.store)
        found = log.head(size)
        return {**found.to_dict(), "signed": _signed(server, found, log.model(size))}

    return await service.queries.run(signed)


def _signed(server: Server, head: TreeHead, model: str) -> dict[str, Any]:
    federation, key = server.store.database.meta("run") or "", Keyring.of(server.store).key()
    return SignedHead.sign(federation, head, now(), key, model=model).envelope.to_dict()


@router.get("/consistency")
async def consistency(request: Request, old: Size, new: Size) -> list[str]:
    """Return the proof that the ledger of size ``old`` is a prefix of the ledger of size ``new``."""
    service = service_of(request)

    def proof(server: Server) -> list[str]:
        log = Log.begin(server.store)
        if not old <= new <= log.head().size:
            raise DataError(f"the ledger has {log.head().size} entries: ask for old ≤ new ≤ that.")
        return log.consistency(old, new)

    return await service.queries.run(proof)


@router.get("/restorations")
async def restorations(request: Request) -> dict[str, Any]:
    """Return the entries that record restored backups, with proofs for the signed head returned with them."""
    service = service_of(request)

    def proved(server: Server) -> dict[str, Any]:
        log = Log.begin(server.store)
        return {"signed": _signed(server, log.head(), log.model()), "restorations": shown(log)}

    return await service.queries.run(proved)


@router.post("/witnesses", status_code=204)
async def countersign(request: Request, body: Witnessed) -> None:
    """Publish a countersigned head for other sites to compare. The newest few of each site are kept."""
    service = service_of(request)
    site = service.client(request)

    def keep(server: Server) -> None:
        head, countersignature = body.head.model_dump(), body.countersignature.model_dump()
        key, must = service.cases.key(site), service.config.signed
        service.witnesses.add(server.store, site, head, countersignature, key=key, must=must)

    await service.queries.run(keep)


@router.get("/witnesses")
async def witnesses(request: Request) -> list[WitnessShape]:
    """Return the countersigned heads of all sites, newest first, to compare with the ledger that the caller sees."""
    service = service_of(request)
    listed = await service.queries.run(lambda _: service.witnesses.listed())
    return [WitnessShape.model_validate(asdict(one)) for one in listed]
