"""What an auditor needs to recompute the server half: settings, the whole ledger, shards, the model, epoch states."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import FileResponse

from splitwiper.errors import BusyError, NotFoundError
from splitwiper.server import Server
from splitwiper.service.api.call import ApiCall, queries
from splitwiper.service.api.certificates import keep_attestation
from splitwiper.service.api.openapi import BINARY
from splitwiper.service.api.shapes import SignedShape
from splitwiper.service.certificate import Log
from splitwiper.store import ModelRecord, ShardRecord

router = APIRouter(prefix="/v1/audit", tags=["audit"])
_BYTES = "application/octet-stream"
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "A safetensors file; ranges may be asked for.", "content": {_BYTES: BINARY}}
}
_ENTRIES = 2000
"""Ledger entries per answer."""
_OF_MODEL = ("digest", "manifest", "exact", "fingerprint", "seconds", "losses", "codebook", "transcript")
_OF_SHARD = ("client", "digest", "rows", "size", "codebook", "outputs", "signed")
"""What a manifest says of the model and of each shard, besides labels and salt."""


@router.get("/settings")
@queries
def audit_settings(server: Server, call: ApiCall) -> dict[str, Any]:
    """Return the server's settings, as TOML; the ledger's first entry commits to them."""
    return {"config": (server.store.root / "config.toml").read_text(encoding="utf-8")}


@router.get("/initial", response_class=FileResponse, responses=_FILE)
async def audit_initial(call: ApiCall) -> FileResponse:
    """Return the server half's first weights, as a safetensors file."""
    return FileResponse(call.service.root / "initial.safetensors", media_type=_BYTES)


@router.get("/ledger")
@queries
def audit_ledger(
    server: Server, call: ApiCall, since: Annotated[int, Query(ge=0, le=1 << 40)] = 0
) -> list[dict[str, Any]]:
    """Return ledger entries after the first `since`, in the form of their leaves, each with its blinding bytes."""
    log = Log.begin(server.store)
    last = min(len(log.entries), since + _ENTRIES)
    return [{"entry": log.shown(seq), "blind": log.blind(seq).hex()} for seq in range(since + 1, last + 1)]


@router.get("/manifest")
@queries
def audit_manifest(server: Server, call: ApiCall) -> dict[str, Any]:
    """Return one consistent state: the model, its shards with their sites' signatures, and the ledger's head.

    From this call until the auditor's attestation arrives, no client may replace its shard repeatedly.
    """
    call.service.pacing.audit_calls()
    store = server.store
    Log.begin(store)  # before the transaction: it may draw a salt
    # one transaction, because a shard that arrived between two reads would not belong to the model
    with store.database.change():
        if not store.is_current():
            raise BusyError("training is under way: ask again when it is done.")
        model = store.model()
        return {
            "head": Log.of(store).head().to_dict(),
            "model": _described(model, _OF_MODEL) if model else None,
            "shards": [_described(shard, _OF_SHARD) for shard in store.shards()],
            "epochs": [record.digest for record in store.epochs()],
        }


@router.get("/shards/{client}", response_class=FileResponse, responses=_FILE)
@queries
def audit_shard(server: Server, call: ApiCall, client: str) -> FileResponse:
    """Return a client's shard."""
    if (record := server.store.shard(client)) is None:
        raise NotFoundError(f"the server holds no shard of {client!r}.")
    return _file(server, "shards", record.file)


@router.get("/model", response_class=FileResponse, responses=_FILE)
@queries
def audit_model(server: Server, call: ApiCall) -> FileResponse:
    """Return the model's weights."""
    if (record := server.store.model()) is None:
        raise NotFoundError("there is no model: nobody holds rows, or training is under way.")
    return _file(server, "models", record.file)


@router.get("/epochs/{epoch}", response_class=FileResponse, responses=_FILE)
@queries
def audit_epoch(server: Server, call: ApiCall, epoch: Annotated[int, Path(ge=0, le=1 << 31)]) -> FileResponse:
    """Return the complete training state after an epoch; 0 is the state before the first."""
    kept = server.store.epochs()
    for record in kept:
        if record.epoch == epoch:
            return _file(server, "epochs", record.file)
    raise NotFoundError(f"there is no state after epoch {epoch}: the server keeps {len(kept)}.")


@router.post("/attestations", status_code=204)
@queries
def attest_audit(server: Server, call: ApiCall, body: SignedShape) -> None:
    """Submit the result of an audit: an attestation signed with the auditor's key. This ends the audit."""
    keep_attestation(server, call, body)
    # from here on, clients may replace their shards as often as before
    call.service.pacing.audit_ends()


def _file(server: Server, folder: str, name: str) -> FileResponse:
    return FileResponse(server.store.blobs.path(folder, name), media_type=_BYTES)


def _described(record: ModelRecord | ShardRecord, names: tuple[str, ...]) -> dict[str, Any]:
    described = {name: getattr(record, name) for name in names}
    return {**described, "salt": record.salt.hex(), "labels": [label.text for label in record.labels]}
