"""What an auditor recomputes the server half from: settings, the whole ledger, shards, the model, states of epochs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import FileResponse

from splitwiper.errors import BusyError, NotFoundError
from splitwiper.server import Server
from splitwiper.service.api.attesting import attest
from splitwiper.service.api.document import BINARY
from splitwiper.service.api.shapes import SignedShape
from splitwiper.service.api.shared import service_of
from splitwiper.service.certificate import Log
from splitwiper.store import ModelRecord, ServerTree, ShardRecord

router = APIRouter(prefix="/v1/audit", tags=["audit"])
_BYTES = "application/octet-stream"
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "A safetensors file; ranges may be asked for.", "content": {_BYTES: BINARY}}
}
_ENTRIES = 2000
"""Entries of the ledger in one answer."""


@router.get("/settings")
async def audit_settings(request: Request) -> dict[str, Any]:
    """The server's settings, as TOML; the ledger's first entry commits to them."""
    service = service_of(request)
    return await service.office.run(
        lambda server: {"config": (server.tree.root / "config.toml").read_text(encoding="utf-8")}
    )


@router.get("/initial", response_class=FileResponse, responses=_FILE)
async def audit_initial(request: Request) -> FileResponse:
    """The server half's first weights, as a safetensors file."""
    service = service_of(request)
    return FileResponse(service.root / "initial.safetensors", media_type=_BYTES)


@router.get("/ledger")
async def audit_ledger(request: Request, since: Annotated[int, Query(ge=0, le=1 << 40)] = 0) -> list[dict[str, Any]]:
    """Entries of the ledger as its leaves have them, each with its blinding bytes, after the first `since`."""
    service = service_of(request)

    def listed(server: Server) -> list[dict[str, Any]]:
        log = Log.begin(server.tree)
        last = min(len(log.entries), since + _ENTRIES)
        return [{"entry": log.shown(seq), "blind": log.blind(seq).hex()} for seq in range(since + 1, last + 1)]

    return await service.office.run(listed)


@router.get("/manifest")
async def audit_manifest(request: Request) -> dict[str, Any]:
    """The model, the shards that it was trained from with what their sites signed, and the ledger's head: one state.

    From this call on, until the auditor's attestation comes, no client may replace its shard again and again.
    """
    service = service_of(request)
    service.pacing.audit_calls()

    def found(server: Server) -> dict[str, Any]:
        tree = server.tree
        with tree.book.change():  # one state for all of it
            if not tree.is_current():
                raise BusyError("training is under way: ask again when it is done.")
            model = tree.model()
            return {
                "head": Log.of(tree).head().to_dict(),
                "model": _model(model) if model else None,
                "shards": [_shard(record) for record in tree.shards()],
                "epochs": [record.digest for record in tree.epochs()],
            }

    await service.office.run(lambda server: Log.begin(server.tree))  # the ledger's salt is drawn before
    return await service.office.run(found)


@router.get("/shards/{client}", response_class=FileResponse, responses=_FILE)
async def audit_shard(request: Request, client: str) -> FileResponse:
    """A client's shard."""
    return await _sent(request, lambda tree: ("shards", _of(tree, client).file))


@router.get("/model", response_class=FileResponse, responses=_FILE)
async def audit_model(request: Request) -> FileResponse:
    """The model's weights."""

    def found(tree: ServerTree) -> tuple[str, str]:
        if (record := tree.model()) is None:
            raise NotFoundError("there is no model: nobody holds rows, or training is under way.")
        return "models", record.file

    return await _sent(request, found)


@router.get("/epochs/{epoch}", response_class=FileResponse, responses=_FILE)
async def audit_epoch(request: Request, epoch: Annotated[int, Path(ge=0, le=1 << 31)]) -> FileResponse:
    """The whole state of training after an epoch; 0 stands for the state before the first."""

    def found(tree: ServerTree) -> tuple[str, str]:
        for record in tree.epochs():
            if record.epoch == epoch:
                return "epochs", record.file
        raise NotFoundError(f"there is no state after epoch {epoch}: the server keeps {len(tree.epochs())}.")

    return await _sent(request, found)


@router.post("/attestations", status_code=204)
async def attest_audit(request: Request, body: SignedShape) -> None:
    """Hand over what the auditor recomputed: an attestation that its own key signed. The audit has ended by that."""
    await attest(request, body)
    service_of(request).pacing.audit_ends()


async def _sent(request: Request, find: Any) -> FileResponse:
    service = service_of(request)

    def look(server: Server) -> FileResponse:
        folder, file = find(server.tree)
        return FileResponse(server.tree.root / folder / file, media_type=_BYTES)

    return await service.office.run(look)


def _of(tree: ServerTree, client: str) -> ShardRecord:
    if (record := tree.shard(client)) is None:
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
