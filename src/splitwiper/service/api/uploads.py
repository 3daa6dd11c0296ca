"""Uploads of shards in pieces: begin, send, query, finish; and withdrawing a shard."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import FileResponse

from splitwiper.errors import DataError, InputError, QuotaError, StoreError
from splitwiper.server import Server
from splitwiper.server.pace import answers
from splitwiper.service.api.openapi import BINARY
from splitwiper.service.api.shapes import (
    AcceptedShape,
    Begin,
    Begun,
    FederationShape,
    Finish,
    ProblemShape,
    SignedShape,
    SiteKey,
    StandingShape,
    Withdraw,
)
from splitwiper.service.api.shared import note, service_of
from splitwiper.service.certificate import Log
from splitwiper.service.certificate.site import ShardStatement
from splitwiper.service.signing import check_shard, register
from splitwiper.service.uploads import Upload
from splitwiper.wire import Statement, open_shard
from splitwiper.wire.transfer import codings

if TYPE_CHECKING:
    from splitwiper.service.api.app import Service

router = APIRouter(prefix="/v1", tags=["shards"])
_BYTES = "application/octet-stream"
_SENT: dict[str, Any] = {
    "description": "The shard's bytes from Upload-Offset on: all that are left, or as many as you like.",
    "required": True,
    "content": {_BYTES: BINARY, "application/offset+octet-stream": BINARY},
}
_UPLOAD: dict[int | str, dict[str, Any]] = {
    404: {"model": ProblemShape, "description": "No such upload of yours: it was finished, cancelled or given up."}
}
_ALONE: dict[int | str, dict[str, Any]] = {
    **_UPLOAD,
    409: {
        "model": ProblemShape,
        "description": "Another call is at this upload: wait for it, and look where it stands.",
    },
}
_WHERE = "How many bytes are here, as the server said last: what is sent goes behind them."
_HOW = "How the body is compressed, if it is: 'codings' of an upload lists what is read here."
Coding = Annotated[str, Header(alias="Content-Encoding", description=_HOW)]
Offset = Annotated[int, Header(ge=0, le=1 << 50, alias="Upload-Offset", description=_WHERE)]


@router.get("/federation")
async def federation(request: Request) -> FederationShape:
    """Return what joining clients must agree with: seed, cut, codec, first weights."""
    service = service_of(request)

    def told(server: Server) -> FederationShape:
        meta = server.store.database.meta
        return FederationShape(
            run=meta("run") or "",
            seed=server.seed,
            at=meta("at") or "",
            architecture=meta("architecture") or "",
            codec=server.codec,
            columns=[(c.name, c.dtype, list(c.shape)) for c in server.columns],
            initial=meta("client-initial") or "",
            largest_value=service.config.largest_value,
        )

    return await service.queries.run(told)


@router.get(
    "/initial",
    response_class=FileResponse,
    responses={200: {"description": "A safetensors file.", "content": {_BYTES: BINARY}}},
)
async def initial(request: Request) -> FileResponse:
    """Return the client half's first weights, as a safetensors file."""
    service = service_of(request)
    return FileResponse(service.root / "client-initial.safetensors", media_type=_BYTES)


@router.post("/site-key", status_code=201)
async def register_key(request: Request, body: SignedShape) -> SiteKey:
    """Register the key that the site signs with, by a registration signed with that same key.

    It is entered into the ledger. Registering the same key again changes nothing; a different one is refused.
    """
    service = service_of(request)
    client = service.client(request)

    def registered(server: Server) -> SiteKey:
        register(server.store, service.cases, client, body.model_dump())
        return SiteKey(key=service.cases.key(client) or "", serial=service.cases.serial(client))

    return await service.queries.run(registered)


@router.get("/site-key")
async def site_key(request: Request) -> SiteKey:
    """Return the site's registered key, empty if there is none, and the serial number of its last shard statement."""
    service = service_of(request)
    client = service.client(request)
    return await service.queries.run(
        lambda _: SiteKey(key=service.cases.key(client) or "", serial=service.cases.serial(client))
    )


@router.get("/standing")
async def standing(request: Request) -> StandingShape:
    """Say whether the server or an operator erased the caller's shard, or refuses its shards, and why."""
    service = service_of(request)
    client = service.client(request)

    def look(server: Server) -> StandingShape:
        found = server.standing(client, service.overrides.reason("evict", client))
        removed = Log.begin(server.store).proof(found.seq) if found.seq else None
        return StandingShape(evicted=found.evicted, removed=removed)

    return await service.queries.run(look)


@router.post("/uploads", status_code=201)
async def begin(request: Request, body: Begin) -> Begun:
    """Begin an upload, or return the one that was begun for the same file."""
    service = service_of(request)
    client = service.client(request)

    def begun(server: Server) -> Begun:
        said, signed = body.statement.statement(), body.signed.model_dump() if body.signed else None
        server.check_admitted(client, said)
        if not answers(server.store, client, said):
            service.pacing.check(client)
        check_shard(server.store, service.cases, client, signed, said, must=service.config.signed)
        text, spared = json.dumps(signed) if signed else None, _spared(server, client, said)
        if spared:
            service.uploads.end_all(client, but=body.mark)  # otherwise several of them would use the disk's reserve
        return _begun(service.uploads.begin(client, body.size, body.mark, said, signed=text, spared=spared))

    made = await service.queries.run(begun)
    note(request, upload=made.id)
    return made


@router.get("/uploads/{upload}", responses=_UPLOAD)
async def look(request: Request, upload: str) -> Begun:
    """Return how many bytes of an upload the server has."""
    service = service_of(request)
    client = service.client(request)
    return _begun(await service.queries.run(lambda _: service.uploads.find(client, upload)))


@router.patch("/uploads/{upload}", responses=_ALONE, openapi_extra={"requestBody": _SENT})
async def send(request: Request, upload: str, offset: Offset, coding: Coding = "identity") -> Begun:
    """Append the body, of any length, to an upload. It is streamed to disk.

    The body may be compressed, as one stream per call; offsets are those of the uncompressed file.
    """
    service = service_of(request)
    client = service.client(request)
    if coding not in ("identity", *codings()):
        raise DataError(f"'Content-Encoding: {coding[:40]}' is not read here; 'codings' of an upload lists what is.")

    def find(server: Server) -> tuple[Upload, int]:
        found = service.uploads.find(client, upload)
        spared = _spared(server, client, found.statement)
        service.uploads.make_room(found, spared)
        return found, spared

    async with service.sending(upload):
        found, spared = await service.queries.run(find)
        packed = coding.replace("identity", "")
        there = await service.uploads.receive(found, offset, request.stream(), spared=spared, coding=packed)
        service.metrics.received.inc(max(0, there - offset))
        await service.queries.run(lambda _: service.uploads.still(found))
        return _begun(found)


@router.post("/uploads/{upload}/finish", responses=_ALONE)
async def finish(request: Request, upload: str, body: Finish) -> AcceptedShape:
    """Check a complete upload, and make it the client's shard; the previous shard is erased.

    A client that makes training start over repeatedly while others wait gets 429: its shard has to wait. If the shard
    answers a request, the previous one is erased all the same, which settles the request.
    """
    service = service_of(request)
    client = service.client(request)
    found = await service.queries.run(lambda _: service.uploads.find(client, upload))

    def accept(server: Server) -> AcceptedShape:
        service.uploads.find(client, upload)  # another shard may have been accepted while this one waited for its turn
        digest = service.uploads.digest(found)
        if digest != body.digest:
            service.uploads.end(found)
            raise DataError("what arrived is not what was sent: its digest differs. Send it again.")
        try:
            _check(found)
            _check_signed(service, found, digest)
            service.uploads.find(client, upload)  # a request may have ended it while it was checked
            asked = answers(server.store, client, found.statement)
            if not asked:
                service.pacing.check(client)
            accepted = AcceptedShape.of(
                server.upload(
                    client,
                    found.path,
                    found.statement,
                    digest=digest,
                    travelled=service.uploads.travelled(found),
                    signed=found.signed,
                )
            )
        except QuotaError:  # retried later; the client's older uploads may contain the rows to forget
            service.uploads.end_all(client, but=found.mark)
            raise
        except InputError:  # it can never be accepted; after an internal error, by contrast, finishing may be retried
            service.uploads.end(found)
            raise
        if not asked:
            service.pacing.count(client)
        service.uploads.end_all(client)
        return accepted

    async with service.sending(found.id):
        try:
            return await service.ingest.run(accept)
        except FileNotFoundError:
            await service.queries.run(lambda _: service.uploads.find(client, upload))  # it may have ended meanwhile
            raise


@router.delete("/uploads/{upload}", status_code=204, responses=_ALONE)
async def cancel(request: Request, upload: str) -> None:
    """Cancel an upload."""
    service = service_of(request)
    client = service.client(request)
    found = await service.queries.run(lambda _: service.uploads.find(client, upload))
    async with service.sending(found.id):
        await service.queries.run(lambda _: service.uploads.end(found))


@router.post("/withdraw", status_code=204)
async def withdraw(request: Request, body: Withdraw) -> None:
    """Erase the client's shard; nothing replaces it."""
    service = service_of(request)
    client = service.client(request)

    def take_away(server: Server) -> None:
        said, signed = body.statement(), body.signed.model_dump() if body.signed else None
        made = check_shard(server.store, service.cases, client, signed, said, must=service.config.signed)
        if made is not None:
            if made.digest:
                raise DataError("what is signed is about a shard that is sent, and not about withdrawing it.")
            service.cases.count(made)
        server.withdraw(client, said)
        service.uploads.end_all(client)

    await service.ingest.run(take_away)


def _spared(server: Server, client: str, statement: Statement) -> int:
    """Return the size up to which a shard may use the disk's reserve: that of the shard it replaces to forget rows."""
    held = server.store.shard(client)
    open_tickets = {ticket.id for ticket in server.tickets(client) if ticket.state == "accepted"}
    return held.size if held is not None and open_tickets & set(statement.tickets) else 0


def _check_signed(service: Service, upload: Upload, digest: str) -> None:
    """Check that the site signed exactly these bytes in a statement newer than its last, and record that statement.

    Raises:
        DataError: it signed other bytes, or the statement is not newer.
        ForbiddenError: the key was dropped or replaced since the upload was begun.
    """
    if upload.signed is None:
        return
    made = ShardStatement.read(json.loads(upload.signed))
    if made.digest != digest:
        raise DataError("what arrived is not the shard that the site signed: its digest differs. Send it again.")
    service.cases.check_key(upload.client, made.key)
    service.cases.count(made)


def _check(upload: Upload) -> None:
    """Refuse a file that is not a shard, before the server accepts it.

    Raises:
        DataError: it is not a shard.
    """
    try:
        open_shard(upload.path)
    except StoreError as problem:
        told = str(problem).replace(str(upload.path), "what was sent")
        raise DataError(f"{told} It is no shard that this server reads.") from problem


def _begun(upload: Upload) -> Begun:
    return Begun(id=upload.id, size=upload.size, offset=upload.offset, expires=upload.expires, codings=codings())
