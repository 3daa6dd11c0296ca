"""Middleware: identify, count and authorise every caller before anything it sent is processed."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from splitwiper import errors
from splitwiper.errors import SplitWiperError
from splitwiper.service.api.call import ABOUT, CALLER
from splitwiper.service.api.heads import HeadSigner
from splitwiper.service.api.receiving import small
from splitwiper.service.connections.limits import Places
from splitwiper.service.identity import Principal

if TYPE_CHECKING:
    from splitwiper.service.api.app import Service

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]
_log = logging.getLogger("splitwiper.service")
_refused = logging.getLogger("splitwiper.service.refused")
_UNCOUNTED = (401, 429)
"""Statuses of calls that were turned away. Such calls may come at any rate, so only a few of them are logged."""
# the first kind that fits counts, so kinds come before those that they are kinds of; all others are answered with 500
_STATUSES: tuple[tuple[type[SplitWiperError], int], ...] = (
    (errors.ForbiddenError, 403),
    (errors.IdentityError, 401),
    (errors.QuotaError, 429),
    (errors.SlowError, 408),
    (errors.WithdrawnError, 503),
    (errors.DiskFullError, 507),
    (errors.NotFoundError, 404),
    (errors.LargeError, 413),
    (errors.InputError, 422),
    (errors.BusyError, 409),
)
_RETRY = {429: 1, 503: 1, 507: 30}
_NO_ROOM = (
    "the server has no room left on its disk; the operator's log says so. Nothing acknowledged was lost: make the same "
    "call again when there is room."
)
_BROKEN = (
    "the server cannot do this just now; its operator finds the reason in the log. Nothing acknowledged was lost: "
    "make the same call again later."
)
_EVERYBODY = ("/v1/federation", "/v1/initial")
_OPERATORS = ("/v1/status", "/v1/operator", "/metrics")
_AUDITORS = ("/v1/audit/",)
_PUBLISHED = ("/v1/keys", "/v1/ledger/")
"""What auditors may read besides, like clients: none of it is about a single client."""
_GUARDED = ("/v1/", "/metrics")
_CHEAP = 1 << 18
"""Body size up to which it is cheaper to read an unwanted body than to close the connection."""
_LONGEST = 64
"""Characters of an upload's or ticket's name that are logged: callers may send any length."""
_AT_ONCE, _WAITING = 4, 128
"""Calls of one caller, besides uploads and predictions, that are in progress at a time, and that may wait. One thread
answers everybody's short queries, in order, so that one caller's must not fill its queue."""
_SHOWING = "/v1/"
"""Responses on these paths carry the ledger's head."""
_CHECKING = ("client", "auditor")
"""Callers that refuse a response without a head."""


class AccessMiddleware:
    """ASGI middleware for authentication, rate limits, ledger heads, logging and metrics."""

    def __init__(self, app: App, service: Service) -> None:
        self._app, self._service = app, service
        self._places = Places(_AT_ONCE, _WAITING, "calls")

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Handle a call and log one line about it, without labels, data or tokens.

        HEAD is answered like GET, without the body.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, method = time.perf_counter(), scope["method"]
        if method == "HEAD":
            scope = {**scope, "method": "GET"}
        reply = _Reply(scope, receive, send, heads=self._service.heads, with_body=method != "HEAD")
        try:
            self._let_in(scope)
            if CALLER not in scope or _streams(scope):
                await self._app(scope, receive, reply.send)
            else:
                caller: Principal = scope[CALLER]
                async with reply.place:
                    await reply.place.enter_async_context(self._places.taken(_named(caller)))
                    with self._service.body_memory.keeping(caller.name) as held:
                        await self._app(scope, await small(scope, receive, held), reply.send)
        except ClientDisconnect:
            reply.status = 499
        except Exception as problem:
            if reply.begun:  # the connection can only be broken off
                raise
            await answer(problem)(scope, receive, reply.send)
        finally:
            route = getattr(scope.get("route"), "path", "unknown")
            seconds = round(time.perf_counter() - start, 6)
            fields = {"method": method, "route": route, "status": reply.status, "seconds": seconds, **_about(scope)}
            (_refused if reply.status in _UNCOUNTED else _log).info("call", extra=fields)
            self._service.metrics.called(method, route, reply.status, seconds)

    def _let_in(self, scope: Scope) -> None:
        """Identify, count and authorise the caller. Every call of an identified caller counts, on open paths too."""
        method, path = scope["method"], scope["path"]
        guarded = path.startswith(_GUARDED)
        caller = self._service.authenticator.principal(scope) if guarded else self._service.authenticator.peer(scope)
        if caller is None:
            return
        scope[CALLER] = caller
        self._service.rates.take(_named(caller))
        whom = "operator" if path.startswith(_OPERATORS) else "auditor" if path.startswith(_AUDITORS) else "client"
        reads = caller.kind == "auditor" and method == "GET" and path.startswith(_PUBLISHED)
        if guarded and caller.kind != whom and not reads and not path.startswith(_EVERYBODY):
            raise errors.ForbiddenError(f"{caller.kind} {caller.name!r} may not do this: it is for {whom}s.")


class _Reply:
    """Sends the response to one call: with the ledger's head, and for HEAD without the body."""

    def __init__(self, scope: Scope, receive: Any, send: Any, *, heads: HeadSigner, with_body: bool) -> None:
        self._scope, self._receive, self._send, self._heads = scope, receive, send, heads
        self._with_body, self._dropped = with_body, False
        self.status, self.begun = 500, False
        self.place = AsyncExitStack()
        """Holds the call's place among its caller's calls in progress."""

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the response."""
        if self._dropped:
            return
        if message["type"] == "http.response.start":
            # the answer is known: a caller that reads it slowly blocks none of its other calls
            await self.place.aclose()
            self.status, self.begun = message["status"], True
            headers = [*message.get("headers", ())]
            if self.status == 429 and _has_body(self._scope):  # the body was not read, and will not be
                headers.append((b"connection", b"close"))
            if CALLER in self._scope and self._scope["path"].startswith(_SHOWING):
                # taken only now, so that it covers what the response reports
                shown = await self._heads.headers(self._scope["headers"])
                if not shown and self._scope[CALLER].kind in _CHECKING:  # 5xx: the caller may retry
                    self.status, self._dropped = 500, True
                    failing = answer(errors.FailingError("the ledger's head cannot be signed"))
                    await failing(self._scope, self._receive, self._send)
                    return
                headers += shown
            message = {**message, "headers": headers}
        elif not self._with_body and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)


def _named(caller: Principal) -> str:
    return f"{caller.kind} {caller.name}"


def _has_body(scope: Scope) -> bool:
    """Return whether the body is so large that reconnecting is cheaper than reading it."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"0")
    # of a chunked body nobody knows the size before it ends
    return b"transfer-encoding" in headers or not length.isdigit() or int(length) > _CHEAP


def _streams(scope: Scope) -> bool:
    """Return whether the route reads the body itself, as a stream."""
    path: str = scope["path"]
    return path == "/v1/predict" or (scope["method"] == "PATCH" and path.startswith("/v1/uploads/"))


def _about(scope: Scope) -> dict[str, Any]:
    """Return the caller, and the upload, ticket or message that a call was about, for the log."""
    fields: dict[str, Any] = {}
    if address := scope.get("client"):
        fields["address"] = str(address[0])
    if CALLER in scope:
        fields["caller"] = _named(scope[CALLER])
    if named := {**scope.get("path_params", {}), **scope.get(ABOUT, {})}:
        fields["about"] = {name: str(value)[:_LONGEST] for name, value in named.items()}
    return fields


def answer(problem: Exception) -> JSONResponse:
    """Return an error as a response. Internal errors are logged for the operator; callers get them without paths."""
    if not isinstance(problem, SplitWiperError):
        _log.error("a call went wrong", exc_info=problem)
        # a full disk can surface as several errors
        full = isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        problem = (errors.DiskFullError if full else errors.StoreError)(f"{type(problem).__name__}: {problem}")
    status = next((code for kind, code in _STATUSES if isinstance(problem, kind)), 500)
    if status in (500, 507):
        _log.error("%s: %s", type(problem).__name__, problem)
        problem = errors.FailingError(_NO_ROOM if status == 507 else _BROKEN)
    headers = {"Retry-After": str(_RETRY[status])} if status in _RETRY else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status in (401, 408, 413):  # the server does not read the rest of the body
        headers["Connection"] = "close"
    return JSONResponse({"kind": type(problem).__name__, "message": str(problem)}, status, headers)
