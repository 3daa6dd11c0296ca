"""Predictions from activations, and the server half for clients that predict locally."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from fastapi import APIRouter
from fastapi.responses import Response, StreamingResponse
from torch import Tensor

from splitwiper.errors import DataError, NotFoundError, SplitWiperError, WithdrawnError
from splitwiper.formats import counted
from splitwiper.server import Server
from splitwiper.service.api.call import ApiCall
from splitwiper.service.api.copies import Copy
from splitwiper.service.api.openapi import BINARY, error_response
from splitwiper.service.api.receiving import received
from splitwiper.service.connections.limits import Reservation
from splitwiper.store import ServerStore
from splitwiper.store.ledger import has_lapsed
from splitwiper.wire import Scores, Ticket
from splitwiper.wire.codecs import fitters, is_fitted
from splitwiper.wire.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from splitwiper.service.api.app import Service

router = APIRouter(prefix="/v1", tags=["predictions"])
TENSORS = "application/vnd.safetensors"
PIECE = 128
"""Rows computed in one turn. Pieces are cut only by position in the request, never by load, because the result's bits
depend on the batch."""
_MOST = 1 << 30
"""Bytes of one prediction's activations: half of the common limit, so that a single client can reach it."""
_HEADER = 1 << 16
"""Bytes of the header of the body sent: it names only a few tensors."""
_TRIES = 5
"""How often a prediction is restarted because a new model was published during it."""
_FILE: dict[str, Any] = {
    "description": "A safetensors file. Its metadata has 'labels' (what outputs stand for: a JSON list), 'codebook' "
    "(that they are codes of, if any) and 'model' (the commitment to the model that answered).",
    "content": {TENSORS: BINARY},
}
_NONE = error_response("There is no model, or it is not handed out.")
_WITHDRAWN = error_response("The model is forgetting; ask again later.")


@router.post(
    "/predict",
    response_class=Response,
    responses={200: _FILE, 404: _NONE, 503: _WITHDRAWN},
    openapi_extra={"requestBody": {"required": True, "content": {TENSORS: BINARY}}},
)
async def predict(call: ApiCall) -> Response:
    """Run the server half on activations, sent as a safetensors file.

    The answer has one row for each input: the index of the most likely label, or logits if the operator allows them.
    Clients are served in turn, some rows at a time; 429 means that this client has too many predictions waiting.
    """
    service, client = call.service, call.client
    async with service.predicting.taken(client):
        with service.prediction_memory.keeping(client) as held:
            pause = partial(service.turns.pause, client)
            body = await received(call.request.stream(), held, most=_MOST, pause=pause)
            try:
                tensors, _ = read_tensors(body, longest=_HEADER)
            except ValueError as problem:
                raise DataError(f"{problem}.") from problem
            return await _answered(service, client, tensors, _rows(tensors, service.config.rows))


async def _answered(service: Service, client: str, tensors: dict[str, Tensor], rows: int) -> Response:
    """Compute the answer, and start over if the model changes, so that one model answers all rows."""
    for _ in range(_TRIES):
        with service.prediction_memory.keeping(client) as held:  # what an attempt held is free for the next one
            if (answer := await _attempt(service, client, tensors, rows, held)) is not None:
                return answer
    raise WithdrawnError("a new model was published again and again while this was computed: ask again.")


async def _attempt(
    service: Service, client: str, tensors: dict[str, Tensor], rows: int, held: Reservation
) -> Response | None:
    """Compute piece by piece; return None if the model changed meanwhile."""
    outputs: list[Tensor] = []
    model = ""
    for start in range(0, rows, PIECE):
        # what a codec fitted to all rows, such as a scale, goes along with each piece of them
        piece = {name: t if is_fitted(name) else t[start : start + PIECE] for name, t in tensors.items()}
        async with service.turns.turn(client):
            scores = await service.inference.run(partial(_computed, service=service, client=client, piece=piece))
        if not outputs:
            model = scores.model
            if service.config.probabilities:
                held.take(2 * 4 * rows * len(scores.labels))  # all logits, and the file they are sent in
        # rows of one answer must not come from two models
        elif scores.model != model:
            return None
        outputs.append(scores.logits if service.config.probabilities else scores.logits.argmax(dim=1))
    output = torch.cat(outputs)
    values = {"logits": output} if service.config.probabilities else {"best": output.to(torch.int32)}
    body = write_tensors(values, scores.labels, codebook=scores.codebook, model=scores.model)
    return Response(body, media_type=TENSORS)


@router.get("/model", response_class=Response, responses={200: _FILE, 404: _NONE, 503: _WITHDRAWN})
async def model(call: ApiCall) -> Response:
    """Return the current server half as a safetensors file, for clients that predict locally.

    'salt' in its metadata opens the commitment in 'model': an HMAC of the digest of these tensors.
    """
    service, client = call.service, call.client
    if not service.config.hand_out:
        raise NotFoundError("this server does not hand its half out: predict there.")

    def copied(server: Server) -> Copy:
        check_serving(server, service, client)
        current = server.model(client)
        if (copy := service.handed_out.find(current.commitment)) is not None:
            return copy
        metadata = {"codebook": current.codebook, "model": current.commitment, "salt": current.salt}
        return service.handed_out.add(current.commitment, write_tensors(current.state, current.labels, **metadata))

    copy = await service.copies.run(copied)
    return StreamingResponse(copy.pieces(), media_type=TENSORS, headers={"Content-Length": str(copy.size)})


def check_serving(server: Server, service: Service, client: str) -> None:
    """Refuse clients that have not joined, and all clients while the model still knows rows that are to be forgotten.

    An operator can override the second rule.

    Raises:
        ForbiddenError: the client has not joined.
        WithdrawnError: the model still knows such rows.
    """
    service.check_joined(client)
    if not service.config.withdraw:
        return
    if waiting := service.overrides.stopping(_withdrawing(server.store)):
        raise WithdrawnError(
            f"the model is withdrawn while {counted(len(waiting), 'request is', 'requests are')} carried out. It "
            "answers again when it has forgotten."
        )


def _withdrawing(store: ServerStore) -> list[Ticket]:
    """Return the requests that withdraw the model: all open ones, except some that were not followed up yet.

    Asking is not enough for a client that once asked without following up, nor for a second request within a day: such
    requests are carried out like any other, but withdraw the model only once the new shard has arrived.
    """
    return [ticket for ticket in store.waiting() if ticket.state != "accepted" or _may_withdraw(store, ticket)]


def _may_withdraw(store: ServerStore, ticket: Ticket) -> bool:
    day_before = (datetime.fromisoformat(ticket.received) - timedelta(days=1)).isoformat(timespec="seconds")
    that_day = [other for other in store.tickets(ticket.client) if day_before < other.received <= ticket.received]
    # the first request of a day withdraws the model; a client could keep it withdrawn with one after another
    if that_day[0].id != ticket.id:
        return False
    with store.database.reading() as db:
        return not has_lapsed(db, ticket.client)


def _rows(tensors: dict[str, Tensor], most: int) -> int:
    """Return the number of rows of a prediction; refuse none, too many, and tensors that differ in length."""
    lengths = {len(tensor) if tensor.ndim else 0 for name, tensor in tensors.items() if not is_fitted(name)}
    if len(lengths) != 1 or not 0 < next(iter(lengths)) <= most:
        raise DataError(f"activations must be tensors of 1 to {most:,} rows each, as many of one as of another.")
    return next(iter(lengths))


def _computed(server: Server, service: Service, client: str, piece: dict[str, Tensor]) -> Scores:
    """Return the scores of some rows, if the model may answer now, and the body has what the cut sends."""
    check_serving(server, service, client)
    wanted = {column.name for column in server.columns}
    coded = fitters(server.columns, server.codec).keys()
    wanted |= {name for name in piece if is_fitted(name) and name.partition("/")[2] in coded}
    if set(piece) != wanted:
        raise DataError(f"the body has the tensors {sorted(piece)[:20]}, and the cut sends {sorted(wanted)[:20]}.")
    try:
        return server.predict(client, piece)
    except (SplitWiperError, OSError, sqlite3.Error):
        raise
    except Exception as problem:  # a network may raise anything for values that do not suit it
        first_line, _, _ = str(problem).partition("\n")
        raise DataError(f"the server half cannot take these activations: {first_line}") from problem
