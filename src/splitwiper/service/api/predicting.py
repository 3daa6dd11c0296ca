"""Predictions on activations, and the server half for those who predict at home."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from fastapi import APIRouter, Request
from fastapi.responses import Response
from safetensors import SafetensorError
from safetensors.torch import load, save

from splitwiper.errors import DataError, NotFoundError, SplitWiperError, WithdrawnError
from splitwiper.formats import counted
from splitwiper.server import Server
from splitwiper.service.api.document import BINARY
from splitwiper.service.api.receiving import received
from splitwiper.service.api.shapes import Problem
from splitwiper.service.api.shared import service_of
from splitwiper.wire import Label, Scores

if TYPE_CHECKING:
    from splitwiper.service.api.app import Service

router = APIRouter(prefix="/v1", tags=["predictions"])
TENSORS = "application/vnd.safetensors"
LABELS, CODEBOOK = "X-Labels", "X-Codebook"
"""Headers: what columns stand for, and the codebook they are codes of."""
MODEL, SALT = "X-Model", "X-Model-Salt"
"""Headers: the commitment to the model that answered, and what opens it."""
_MOST = 1 << 30
"""Bytes of a prediction's activations: half of what all have, so that one client may have it."""
_FILE: dict[str, Any] = {
    "description": "A safetensors file.",
    "content": {TENSORS: BINARY},
    "headers": {
        LABELS: {"description": "What outputs stand for: a JSON list.", "schema": {"type": "string"}},
        CODEBOOK: {"description": "The codebook that they are codes of, if any.", "schema": {"type": "string"}},
        MODEL: {"description": "The commitment to the model that answered.", "schema": {"type": "string"}},
    },
}
_NONE: dict[str, Any] = {"model": Problem, "description": "There is no model, or it is not handed out."}
_WITHDRAWN: dict[str, Any] = {"model": Problem, "description": "The model is forgetting; ask again later."}


@router.post(
    "/predict",
    response_class=Response,
    responses={200: _FILE, 404: _NONE, 503: _WITHDRAWN},
    openapi_extra={"requestBody": {"required": True, "content": {TENSORS: BINARY}}},
)
async def predict(request: Request) -> Response:
    """Run the server half on activations, given as a safetensors file.

    The answer has one row for each input: the place of the most likely label, or logits where the operator allows it.
    """
    service = service_of(request)
    client = service.client(request)
    with service.held.keeping(client) as held:
        return await _answered(service, client, await received(request.stream(), held, most=_MOST))


async def _answered(service: Service, client: str, body: bytes) -> Response:
    def answer(server: Server) -> Response:
        check_serving(server, service)
        boundary = _tensors(body, service.config.rows)
        scores = _asked(server, client, boundary)
        tensors = (
            {"logits": scores.logits.contiguous()}
            if service.config.probabilities
            else {"best": scores.logits.argmax(dim=1).to(torch.int32)}
        )
        headers = {LABELS: _ascii(scores.labels), CODEBOOK: scores.codebook, MODEL: scores.model}
        return Response(save(tensors), media_type=TENSORS, headers=headers)

    return await service.oracle.run(answer)


@router.get("/model", response_class=Response, responses={200: _FILE, 404: _NONE, 503: _WITHDRAWN})
async def model(request: Request) -> Response:
    """The server half as it is, as a safetensors file, for clients that predict at home.

    The header X-Model-Salt opens the commitment in X-Model: an HMAC of the digest of these tensors.
    """
    service = service_of(request)
    client = service.client(request)
    if not service.config.hand_out:
        raise NotFoundError("this server does not hand its half out: predict there.")

    def copied(server: Server) -> Response:
        check_serving(server, service)
        found = server.model(client)
        headers = {
            LABELS: _ascii(found.labels),
            CODEBOOK: found.codebook,
            MODEL: found.commitment,
            SALT: found.salt,
        }
        return Response(save(dict(found.state)), media_type=TENSORS, headers=headers)

    return await service.oracle.run(copied)


def check_serving(server: Server, service: Service) -> None:
    """Do not answer while the model knows what somebody asked to forget, unless an operator says so.

    Raises:
        WithdrawnError: it does.
    """
    if not service.config.withdraw:
        return
    if waiting := service.overrides.stopping(server.tree.waiting()):
        raise WithdrawnError(
            f"the model is withdrawn while {counted(len(waiting), 'request is', 'requests are')} carried out. It "
            "answers again when it has forgotten."
        )


def _tensors(body: bytes, most: int) -> dict[str, torch.Tensor]:
    try:
        boundary = load(body)
    except (SafetensorError, ValueError, TypeError, KeyError) as problem:
        raise DataError(f"the body is no safetensors file: {problem}") from problem
    lengths = {len(tensor) if tensor.ndim else 0 for tensor in boundary.values()}
    if len(lengths) != 1 or not 0 < next(iter(lengths)) <= most:
        raise DataError(f"activations must be tensors of 1 to {most:,} rows each, as many of one as of another.")
    return boundary


def _asked(server: Server, client: str, boundary: dict[str, torch.Tensor]) -> Scores:
    try:
        return server.predict(client, boundary)
    except SplitWiperError:
        raise
    except (RuntimeError, ValueError, KeyError, IndexError, TypeError) as problem:
        raise DataError(
            f"the server half cannot take these activations: {str(problem).partition(chr(10))[0]}"
        ) from problem


def _ascii(labels: tuple[Label, ...]) -> str:
    return json.dumps([label.text for label in labels])
