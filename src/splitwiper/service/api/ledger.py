"""The ledger for third parties: signed heads, proofs, sites' countersignatures, restored backups."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from splitwiper.errors import DataError
from splitwiper.server import Server
from splitwiper.service.api.call import ApiCall, queries
from splitwiper.service.api.shapes import ApiShape, SignatureShape
from splitwiper.service.certificate import Keyring, Log, SignedHead, TreeHead
from splitwiper.service.certificate.restoring import shown
from splitwiper.service.records.witnesses import Witness
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


@router.get("/head")
@queries
def head(server: Server, call: ApiCall, size: Annotated[int | None, Query(ge=1, le=1 << 40)] = None) -> dict[str, Any]:
    """Return the ledger's size and root, now or at ``size`` entries, in plain and as a signed DSSE envelope."""
    log = Log.begin(server.store)
    tree_head = log.head(size)
    return {**tree_head.to_dict(), "signed": _signed(server, tree_head, log.model(size))}


def _signed(server: Server, head: TreeHead, model: str) -> dict[str, Any]:
    key = Keyring.of(server.store).key()
    return SignedHead.sign(server.store.federation, head, now(), key, model=model).envelope.to_dict()


@router.get("/consistency")
@queries
def consistency(server: Server, call: ApiCall, old: Size, new: Size) -> list[str]:
    """Return the proof that the ledger of size ``old`` is a prefix of the ledger of size ``new``."""
    log = Log.begin(server.store)
    if not old <= new <= log.head().size:
        raise DataError(f"the ledger has {log.head().size} entries: ask for old ≤ new ≤ that.")
    return log.consistency(old, new)


@router.get("/model")
@queries
def model_entry(server: Server, call: ApiCall) -> dict[str, Any]:
    """Return the ledger's newest entry about a model, with the proof that it is in the ledger."""
    log = Log.begin(server.store)
    return log.proof(log.newest("model"))


@router.get("/restorations")
@queries
def restorations(server: Server, call: ApiCall) -> dict[str, Any]:
    """Return the entries that record restored backups, with proofs for the signed head returned with them."""
    log = Log.begin(server.store)
    return {"signed": _signed(server, log.head(), log.model()), "restorations": shown(log)}


@router.post("/witnesses", status_code=204)
@queries
def countersign(server: Server, call: ApiCall, body: Witnessed) -> None:
    """Publish a countersigned head for other sites to compare. The newest few of each site are kept."""
    head, countersignature = body.head.model_dump(), body.countersignature.model_dump()
    call.service.witnesses.add(server.store, call.client, head, countersignature, keys=call.service.keys)


@router.get("/witnesses")
@queries
def witnesses(server: Server, call: ApiCall) -> list[Witness]:
    """Return the countersigned heads of all sites, newest first, to compare with the ledger that the caller sees."""
    return call.service.witnesses.listed()
