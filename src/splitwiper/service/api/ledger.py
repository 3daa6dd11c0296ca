"""The ledger for outsiders: signed heads, proofs between them, countersignatures of sites, and restored backups."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field

from splitwiper.errors import DataError
from splitwiper.server import Server
from splitwiper.service.api.shapes import Shape, SignatureShape
from splitwiper.service.api.shared import service_of
from splitwiper.service.certificate import Head, Keyring, Log, SignedHead
from splitwiper.service.certificate.restoring import shown
from splitwiper.store.tickets import now

router = APIRouter(prefix="/v1/ledger", tags=["proof"])
Size = Annotated[int, Query(ge=1, le=1 << 40)]


class EnvelopeShape(Shape):
    """A DSSE envelope."""

    payload: Annotated[str, Field(max_length=4096)]
    payloadType: Annotated[str, Field(max_length=100)]
    signatures: Annotated[list[SignatureShape], Field(min_length=1, max_length=4)]


class Witnessed(Shape):
    """A head as the server signed it, and a site's countersignature of it."""

    head: EnvelopeShape
    countersignature: EnvelopeShape


class WitnessShape(Witnessed):
    """A countersigned head as it is relayed: from whom, and when it came."""

    site: str
    received: str


@router.get("/head")
async def head(request: Request, size: Annotated[int | None, Query(ge=1, le=1 << 40)] = None) -> dict[str, Any]:
    """The ledger's size and root, now or when it had ``size`` entries, and the same signed, as a DSSE envelope."""
    service = service_of(request)

    def signed(server: Server) -> dict[str, Any]:
        log = Log.begin(server.tree)
        found = log.head(size)
        return {**found.to_dict(), "signed": _signed(server, found, log.model(size))}

    return await service.office.run(signed)


def _signed(server: Server, head: Head, model: str) -> dict[str, Any]:
    federation, key = server.tree.book.meta("run") or "", Keyring.of(server.tree).key()
    return SignedHead.sign(federation, head, now(), key, model=model).envelope.to_dict()


@router.get("/consistency")
async def consistency(request: Request, old: Size, new: Size) -> list[str]:
    """The proof that the ledger of one length is the beginning of that of another."""
    service = service_of(request)

    def proof(server: Server) -> list[str]:
        log = Log.begin(server.tree)
        if not old <= new <= log.head().size:
            raise DataError(f"the ledger has {log.head().size} entries: ask for old ≤ new ≤ that.")
        return log.consistency(old, new)

    return await service.office.run(proof)


@router.get("/restorations")
async def restorations(request: Request) -> dict[str, Any]:
    """The entries that say that the store was restored from a backup, with proofs for the signed head beside them."""
    service = service_of(request)

    def proved(server: Server) -> dict[str, Any]:
        log = Log.begin(server.tree)
        return {"signed": _signed(server, log.head(), log.model()), "restorations": shown(log)}

    return await service.office.run(proved)


@router.post("/witnesses", status_code=204)
async def countersign(request: Request, body: Witnessed) -> None:
    """Leave a countersigned head for other sites to compare. The newest few of each site are kept."""
    service = service_of(request)
    site = service.client(request)

    def keep(server: Server) -> None:
        head, countersignature = body.head.model_dump(), body.countersignature.model_dump()
        key, must = service.cases.key(site), service.config.signed
        service.witnesses.add(server.tree, site, head, countersignature, key=key, must=must)

    await service.office.run(keep)


@router.get("/witnesses")
async def witnesses(request: Request) -> list[WitnessShape]:
    """The countersigned heads of all sites, the newest first. Compare them with the ledger that you are shown."""
    service = service_of(request)
    listed = await service.office.run(lambda _: service.witnesses.listed())
    return [WitnessShape.model_validate(asdict(one)) for one in listed]
