"""The OpenAPI document, with who may call what, and the responses to errors."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from splitwiper.service.api.shapes import ProblemShape

_ABOUT = """Every call but the probes needs an identity: a client's, operator's or auditor's certificate (mutual TLS),
or, where a proxy terminates TLS, a token. Errors have one shape: a kind, and a message that says what to
do. Every call may be made again: repeating one changes nothing. Wherever there is GET, HEAD answers the same without a
body."""
_SCHEMES = {
    "certificate": {"type": "mutualTLS", "description": "A client certificate of an authority that the server trusts."},
    "token": {"type": "http", "scheme": "bearer", "description": "A token that 'splitwiper certs token' made."},
}
_TAGS = {
    "shards": "Joining, and shards in pieces. For clients.",
    "requests": "Asking to be forgotten, and where that stands. For clients.",
    "proof": "Certificates, the keys that sign them, and the ledger. For clients, keys and ledger for auditors too.",
    "predictions": "The model's answers, and the model. For clients.",
    "relay": "Sealed messages between clients.",
    "state": "For probes: no identity beyond that of the connection is asked for.",
    "operator": "For operators.",
    "audit": "What an auditor recomputes the server half from. For auditors.",
}
_OFTEN = {
    401: "Nobody that the service knows: no certificate or token, or one that was revoked or has run out.",
    403: "Known, and this is not for them: some calls are for clients, others for operators or auditors.",
    408: "The body came too slowly.",
    413: "More was sent than one call takes.",
    422: "What was sent does not fit.",
    429: "Too often, or too much: wait as long as Retry-After says.",
    507: "The server's disk is full. Nothing acknowledged was lost; the operator's log says so.",
}


def error_response(description: str) -> dict[str, Any]:
    """Return an error response as the document describes it."""
    return {"model": ProblemShape, "description": description}


PROBLEMS: dict[int | str, dict[str, Any]] = {code: error_response(description) for code, description in _OFTEN.items()}
"""Error responses that any call of a client or operator may get."""
BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
"""Schema of binary content."""


class Described(FastAPI):
    """A FastAPI application whose OpenAPI document also says who may call."""

    def __init__(self, **given: Any) -> None:
        super().__init__(
            description=_ABOUT,
            openapi_tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
            generate_unique_id_function=lambda route: route.name,
            openapi_url=None,  # FastAPI's own route would serialise the document for every call
            docs_url=None,  # these pages would run third-party scripts in the browser
            redoc_url=None,
            **given,
        )
        self._written: bytes | memoryview = b""
        self.add_route("/openapi.json", self._document, include_in_schema=False)

    async def _document(self, _: Request) -> Response:
        """Return the document, serialised once."""
        self._written = self._written or JSONResponse(self.openapi()).body
        return Response(self._written, media_type="application/json")

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, with the security schemes."""
        document = super().openapi()
        document.setdefault("components", {})["securitySchemes"] = _SCHEMES
        document["security"] = [{name: []} for name in _SCHEMES]
        return document
