"""Uploads of shards in pieces: begin, send, query, finish; and withdrawing a shard."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import FileResponse

from splitwiper.errors import DataError, InputError, QuotaError, StoreError
from splitwiper.server import Server
from splitwiper.server.limits import answers_request
from splitwiper.service.api import shapes
from splitwiper.service.api.call import ApiCall, Call, ingest, queries
from splitwiper.service.api.openapi import BINARY
from splitwiper.service.certificate import Log
from splitwiper.service.certificate.signed import ShardStatement
from splitwiper.service.records.uploads import Upload
from splitwiper.wire import Statement, open_shard
from splitwiper.wire.transfer import codings

if TYPE_CHECKING:
    from splitwiper.service.api.app import Service

router = APIRouter(prefix="/v1", tags=["shards"])
_BYTES = "application/octet-stream"
_SENT: dict[str, Any] = {
    "description": "The shard's bytes from Upload-Offset on: all remaining ones, or any number of them.",
    "required": True,
    "content": {_BYTES: BINARY, "application/offset+octet-stream": BINARY},
}
_GONE = {
    "model": shapes.ProblemShape,
    "description": "No such upload of yours: it was finished, cancelled or has expired.",
}
_BUSY = {
    "model": shapes.ProblemShape,
    "description": "Another call is at this upload: wait for it, then ask how far the upload has come.",
}
_WHERE = "How many bytes the server has, according to its last answer: the body is appended to them."
_HOW = "How the body is compressed, if it is: 'codings' of an upload lists what is read here."
Coding = Annotated[str, Header(alias="Content-Encoding", description=_HOW)]
Offset = Annotated[int, Header(ge=0, le=1 << 50, alias="Upload-Offset", description=_WHERE)]


@router.get("/federation")
@queries
def federation(server: Server, call: ApiCall) -> shapes.FederationShape:
    """Return what joining clients must agree with: seed, cut, codec, first weights."""
    meta = server.store.database.meta
    return shapes.FederationShape(
        run=server.store.federation,
        seed=server.seed,
        at=meta("at") or "",
        architecture=meta("architecture") or "",
        codec=server.codec,
        columns=[(column.name, column.dtype, list(column.shape)) for column in server.columns],
        initial=meta("client-initial") or "",
        largest_value=call.service.config.largest_value,
    )


@router.get(
    "/initial",
    response_class=FileResponse,
    responses={200: {"description": "A safetensors file.", "content": {_BYTES: BINARY}}},
)
async def initial(call: ApiCall) -> FileResponse:
    """Return the client half's first weights, as a safetensors file."""
    return FileResponse(call.service.root / "client-initial.safetensors", media_type=_BYTES)


@router.post("/site-key", status_code=201)
@queries
def register_key(server: Server, call: ApiCall, body: shapes.SignedShape) -> shapes.SiteKey:
    """Register the key that the site signs with, by a registration signed with that same key.

    It is entered into the ledger. Registering the same key again changes nothing; a different one is refused.
    """
    call.service.keys.register(server.store, call.client, body.model_dump())
    return _site_key(call)


@router.get("/site-key")
@queries
def site_key(server: Server, call: ApiCall) -> shapes.SiteKey:
    """Return the site's registered key, empty if there is none, and the serial number of its last shard statement."""
    return _site_key(call)


def _site_key(call: Call) -> shapes.SiteKey:
    keys = call.service.keys
    return shapes.SiteKey(key=keys.key(call.client) or "", serial=keys.serial(call.client))


@router.get("/standing")
@queries
def standing(server: Server, call: ApiCall) -> shapes.StandingShape:
    """Say whether the server or an operator erased the caller's shard, or refuses its shards, and why."""
    known = server.standing(call.client, call.service.overrides.reason("evict", call.client))
    removed = Log.begin(server.store).proof(known.seq) if known.seq else None
    return shapes.StandingShape(evicted=known.evicted, removed=removed)


@router.post("/uploads", status_code=201)
@queries
def begin(server: Server, call: ApiCall, body: shapes.Begin) -> shapes.Begun:
    """Begin an upload, or return the one that was begun for the same file."""
    service, client = call.service, call.client
    statement, signed = body.statement.statement(), body.signed.model_dump() if body.signed else None
    server.check_admitted(client, statement)
    if not answers_request(server.store, client, statement):
        service.pacing.check(client)
    service.keys.check_shard(server.store, client, signed, statement)
    text, spared = json.dumps(signed) if signed else None, _spared(server, client, statement)
    if spared:
        service.uploads.end_all(client, but=body.mark)  # otherwise several of them would use the disk's reserve
    upload = service.uploads.begin(client, body.size, body.mark, statement, signed=text, spared=spared)
    call.note(upload=upload.id)
    return _begun(upload)


@router.get("/uploads/{upload}", responses={404: _GONE})
@queries
def look(server: Server, call: ApiCall, upload: str) -> shapes.Begun:
    """Return how many bytes of an upload the server has."""
    return _begun(call.service.uploads.find(call.client, upload))


@router.patch("/uploads/{upload}", responses={404: _GONE, 409: _BUSY}, openapi_extra={"requestBody": _SENT})
async def send(call: ApiCall, upload: str, offset: Offset, coding: Coding = "identity") -> shapes.Begun:
    """Append the body, of any length, to an upload. It is streamed to disk.

    The body may be compressed, as one stream per call; offsets are those of the uncompressed file.
    """
    thread, uploads = call.service.queries, call.service.uploads
    if coding not in ("identity", *codings()):
        raise DataError(f"'Content-Encoding: {coding[:40]}' is not read here; 'codings' of an upload lists what is.")

    def find(server: Server) -> tuple[Upload, int]:
        found = uploads.find(call.client, upload)
        spared = _spared(server, call.client, found.statement)
        uploads.make_room(found, spared)
        return found, spared

    with uploads.alone(upload):
        # looked up only now that no other call works on it: one may have finished or cancelled it
        found, spared = await thread.run(find)
        packed = coding.replace("identity", "")
        arrived = await uploads.receive(found, offset, call.request.stream(), spared=spared, coding=packed)
        call.service.metrics.received.inc(max(0, arrived - offset))
        await thread.run(lambda _: uploads.still(found))
        return _begun(found)


@router.post("/uploads/{upload}/finish", responses={404: _GONE, 409: _BUSY})
async def finish(call: ApiCall, upload: str, body: shapes.Finish) -> shapes.AcceptedShape:
    """Check a complete upload, and make it the client's shard; the previous shard is erased.

    A client that makes training start over repeatedly while others wait gets 429: its shard has to wait. If the shard
    answers a request, the previous one is erased all the same, which settles the request.
    """
    thread, uploads = call.service.queries, call.service.uploads
    found = await thread.run(lambda _: uploads.find(call.client, upload))
    with uploads.alone(found.id):
        try:
            return await call.service.ingest.run(partial(_accept, call.service, found, body.digest))
        except FileNotFoundError:
            await thread.run(lambda _: uploads.find(call.client, upload))  # says so if it has ended meanwhile
            raise


def _accept(service: Service, upload: Upload, digest: str, server: Server) -> shapes.AcceptedShape:
    """Check what arrived, and make it the client's shard: on the thread for that, so that none is half accepted."""
    uploads, client = service.uploads, upload.client
    uploads.find(client, upload.id)  # another shard may have been accepted while this one waited for its turn
    if uploads.digest(upload) != digest:
        uploads.end(upload)
        raise DataError("what arrived is not what was sent: its digest differs. Send it again.")
    try:
        _check(upload)
        _check_signed(service, upload, digest)
        uploads.find(client, upload.id)  # a request may have ended it while it was checked
        paced = not answers_request(server.store, client, upload.statement)  # a shard that forgets rows has no limit
        if paced:
            service.pacing.check(client)
        travelled = uploads.travelled(upload)
        accepted = server.upload(
            client, upload.path, upload.statement, digest=digest, travelled=travelled, signed=upload.signed
        )
    except QuotaError:  # retried later; the client's older uploads may contain the rows to forget
        uploads.end_all(client, but=upload.mark)
        raise
    except InputError:  # it can never be accepted; after an internal error, by contrast, finishing may be retried
        uploads.end(upload)
        raise
    if paced:
        service.pacing.count(client)
    uploads.end_all(client)
    return shapes.AcceptedShape(digest=accepted.digest, generation=accepted.generation)


@router.delete("/uploads/{upload}", status_code=204, responses={404: _GONE, 409: _BUSY})
async def cancel(call: ApiCall, upload: str) -> None:
    """Cancel an upload."""
    thread, uploads = call.service.queries, call.service.uploads
    found = await thread.run(lambda _: uploads.find(call.client, upload))
    with uploads.alone(found.id):
        await thread.run(lambda _: uploads.end(found))


@router.post("/withdraw", status_code=204)
@ingest
def withdraw(server: Server, call: ApiCall, body: shapes.Withdraw) -> None:
    """Erase the client's shard; nothing replaces it."""
    service, client = call.service, call.client
    statement, signed = body.statement(), body.signed.model_dump() if body.signed else None
    checked = service.keys.check_shard(server.store, client, signed, statement)
    if checked is not None:
        if checked.digest:
            raise DataError("the signed statement is about a new shard, and not about withdrawing the present one.")
        service.keys.count(checked)
    server.withdraw(client, statement)
    service.uploads.end_all(client)


def _spared(server: Server, client: str, statement: Statement) -> int:
    """Return the size up to which a shard may use the disk's reserve: that of the shard it replaces to forget rows."""
    held = server.store.shard(client)
    open_tickets = {ticket.id for ticket in server.tickets(client) if ticket.state == "accepted"}
    return held.size if held is not None and open_tickets & set(statement.tickets) else 0


def _check_signed(service: Service, upload: Upload, digest: str) -> None:
    """Check that the site signed exactly these bytes in a statement newer than its last, and record that statement."""
    if upload.signed is None:
        return
    signed = ShardStatement.read(json.loads(upload.signed))
    if signed.digest != digest:
        raise DataError("what arrived is not the shard that the site signed: its digest differs. Send it again.")
    service.keys.check(upload.client, signed.key)  # dropped or replaced, perhaps, since the upload was begun
    service.keys.count(signed)


def _check(upload: Upload) -> None:
    """Refuse a file that is not a shard, before the server accepts it."""
    try:
        open_shard(upload.path)
    except StoreError as problem:
        text = str(problem).replace(str(upload.path), "what was sent")  # callers are not told paths
        raise DataError(f"{text} This server cannot read it as a shard.") from problem


def _begun(upload: Upload) -> shapes.Begun:
    return shapes.Begun(id=upload.id, size=upload.size, offset=upload.offset, expires=upload.expires, codings=codings())
