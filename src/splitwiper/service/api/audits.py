"""What an auditor needs to recompute the server half: settings, the whole ledger, shards, the model, epoch states."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import FileResponse

from splitwiper.errors import BusyError, NotFoundError
from splitwiper.server import Server
from splitwiper.service.api.attestations import attest
from splitwiper.service.api.openapi import BINARY
from splitwiper.service.api.shapes import SignedShape
from splitwiper.service.api.shared import service_of
from splitwiper.service.certificate import Log
from splitwiper.store import ModelRecord, ServerStore, ShardRecord

router = APIRouter(prefix="/v1/audit", tags=["audit"])
_BYTES = "application/octet-stream"
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "A safetensors file; ranges may be asked for.", "content": {_BYTES: BINARY}}
}
_ENTRIES = 2000
"""Ledger entries per answer."""


@router.get("/settings")
async def audit_settings(request: Request) -> dict[str, Any]:
    """Return the server's settings, as TOML; the ledger's first entry commits to them."""
    service = service_of(request)
    return await service.queries.run(
        lambda server: {"config": (server.store.root / "config.toml").read_text(encoding="utf-8")}
    )


@router.get("/initial", response_class=FileResponse, responses=_FILE)
async def audit_initial(request: Request) -> FileResponse:
    """Return the server half's first weights, as a safetensors file."""
    service = service_of(request)
    return FileResponse(service.root / "initial.safetensors", media_type=_BYTES)


@router.get("/ledger")
async def audit_ledger(request: Request, since: Annotated[int, Query(ge=0, le=1 << 40)] = 0) -> list[dict[str, Any]]:
    """Return ledger entries after the first `since`, in the form of their leaves, each with its blinding bytes."""
    service = service_of(request)

    def listed(server: Server) -> list[dict[str, Any]]:
        log = Log.begin(server.store)
        last = min(len(log.entries), since + _ENTRIES)
        return [{"entry": log.shown(seq), "blind": log.blind(seq).hex()} for seq in range(since + 1, last + 1)]

    return await service.queries.run(listed)


@router.get("/manifest")
async def audit_manifest(request: Request) -> dict[str, Any]:
    """Return one consistent state: the model, its shards with their sites' signatures, and the ledger's head.

    From this call until the auditor's attestation arrives, no client may replace its shard repeatedly.
    """
    service = service_of(request)
    service.pacing.audit_calls()

    def found(server: Server) -> dict[str, Any]:
        store = server.store
        with store.database.change():  # one transaction, so one consistent state
            if not store.is_current():
                raise BusyError("training is under way: ask again when it is done.")
            model = store.model()
            return {
                "head": Log.of(store).head().to_dict(),
                "model": _model(model) if model else None,
                "shards": [_shard(record) for record in store.shards()],
                "epochs": [record.digest for record in store.epochs()],
            }

    await service.queries.run(lambda server: Log.begin(server.store))  # before that: it may draw a salt
    return await service.queries.run(found)


@router.get("/shards/{client}", response_class=FileResponse, responses=_FILE)
async def audit_shard(request: Request, client: str) -> FileResponse:
    """Return a client's shard."""
    return await _sent(request, lambda store: ("shards", _of(store, client).file))


@router.get("/model", response_class=FileResponse, responses=_FILE)
async def audit_model(request: Request) -> FileResponse:
    """Return the model's weights."""

    def found(store: ServerStore) -> tuple[str, str]:
        if (record := store.model()) is None:
            raise NotFoundError("there is no model: nobody holds rows, or training is under way.")
        return "models", record.file

    return await _sent(request, found)


@router.get("/epochs/{epoch}", response_class=FileResponse, responses=_FILE)
async def audit_epoch(request: Request, epoch: Annotated[int, Path(ge=0, le=1 << 31)]) -> FileResponse:
    """Return the complete training state after an epoch; 0 is the state before the first."""

    def found(store: ServerStore) -> tuple[str, str]:
        for record in store.epochs():
            if record.epoch == epoch:
                return "epochs", record.file
        raise NotFoundError(f"there is no state after epoch {epoch}: the server keeps {len(store.epochs())}.")

    return await _sent(request, found)


@router.post("/attestations", status_code=204)
async def attest_audit(request: Request, body: SignedShape) -> None:
    """Submit the result of an audit: an attestation signed with the auditor's key. This ends the audit."""
    await attest(request, body)
    service_of(request).pacing.audit_ends()


async def _sent(request: Request, find: Any) -> FileResponse:
    service = service_of(request)

    def look(server: Server) -> FileResponse:
        folder, file = find(server.store)
        return FileResponse(server.store.root / folder / file, media_type=_BYTES)

    return await service.queries.run(look)


def _of(store: ServerStore, client: str) -> ShardRecord:
    if (record := store.shard(client)) is None:
        raise NotFoundError(f"the server holds no shard of {client!r}.")
    return record


def _model(record: ModelRecord) -> dict[str, Any]:
    return {
        "digest": record.digest,
        "manifest": record.manifest,
        "salt": record.salt.hex(),
        "labels": [label.text for label in record.labels],
        "exact": record.exact,
        "fingerprint": dict(record.fingerprint),
        "seconds": record.seconds,
        "losses": list(record.losses),
        "codebook": record.codebook,
        "transcript": record.transcript,
    }


def _shard(record: ShardRecord) -> dict[str, Any]:
    return {
        "client": record.client,
        "digest": record.digest,
        "rows": record.rows,
        "size": record.size,
        "salt": record.salt.hex(),
        "labels": [label.text for label in record.labels],
        "codebook": record.codebook,
        "outputs": record.outputs,
        "signed": record.signed,
    }
