"""Middleware: identify, count and authorise every caller before anything it sent is processed."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack
from typing import Any

from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from splitwiper.errors import (
    BusyError,
    CorruptError,
    DiskFullError,
    FailingError,
    ForbiddenError,
    IdentityError,
    InputError,
    LargeError,
    NotFoundError,
    QuotaError,
    SlowError,
    SplitWiperError,
    StoreError,
    WithdrawnError,
)
from splitwiper.service.access import Authenticator, MemoryQuota, RateLimiter
from splitwiper.service.api.call import ABOUT, CALLER
from splitwiper.service.api.receiving import small
from splitwiper.service.heads import Heads
from splitwiper.service.identity import Principal
from splitwiper.service.metrics import Metrics
from splitwiper.service.turns import Places

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]
_log = logging.getLogger("splitwiper.service")
_refused = logging.getLogger("splitwiper.service.refused")
_UNCOUNTED = (401, 429)
"""Statuses of calls that were turned away. Such calls may come at any rate, so only a few of them are logged."""
_ANSWERS: tuple[tuple[type[SplitWiperError], int], ...] = (
    (ForbiddenError, 403),
    (IdentityError, 401),
    (QuotaError, 429),
    (SlowError, 408),
    (WithdrawnError, 503),
    (DiskFullError, 507),
    (NotFoundError, 404),
    (LargeError, 413),
    (InputError, 422),
    (BusyError, 409),
    (CorruptError, 500),
    (StoreError, 500),
)
_RETRY = {429: 1, 503: 1, 507: 30}
_NO_ROOM = (
    "the server has no room left on its disk; its operator has been informed. Nothing acknowledged was lost: make the "
    "same call again when there is room."
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
    """ASGI middleware for authentication, rate limits, ledger heads, logging and metrics.

    Args:
        app: the application behind it.
        gate: identifies callers.
        rates: limits calls per caller.
        held: limits the memory of small request bodies.
        metrics: counts calls.
        heads: the ledger's signed head, sent with every response to an identified caller.
    """

    def __init__(
        self, app: App, gate: Authenticator, rates: RateLimiter, held: MemoryQuota, metrics: Metrics, heads: Heads
    ) -> None:
        self._app, self._gate, self._rates, self._held, self._metrics = app, gate, rates, held, metrics
        self._heads = heads
        self._places = Places(_AT_ONCE, _WAITING, "calls")

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Handle a call and log one line about it, without labels, data or tokens.

        HEAD is answered like GET, without the body.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, start, status, begun, dropped = scope["method"], time.perf_counter(), 500, False, False
        place, bare = AsyncExitStack(), method == "HEAD"
        if bare:
            scope = {**scope, "method": "GET"}

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal status, begun, dropped
            if dropped:
                return
            if message["type"] == "http.response.start":
                await (
                    place.aclose()
                )  # the answer is known; a caller that reads it slowly blocks none of its other calls
                status, begun = message["status"], True
                if status == 429 and _has_body(scope):  # the body was not read, and will not be
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
                if CALLER in scope and scope["path"].startswith(_SHOWING):  # now: it covers what is reported
                    shown = await self._heads.headers(scope["headers"])
                    if not shown and scope[CALLER].kind in _CHECKING:  # 5xx: the caller may retry
                        status, dropped = 500, True
                        await answer(FailingError("the ledger's head cannot be signed"))(scope, receive, send)
                        return
                    message = {**message, "headers": [*message.get("headers", ()), *shown]}
            elif bare and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            self._let_in(scope)
            if CALLER not in scope or _streams(scope):
                await self._app(scope, receive, noted)
            else:
                caller: Principal = scope[CALLER]
                async with place:
                    await place.enter_async_context(self._places.taken(_named(caller)))
                    with self._held.keeping(caller.name) as held:
                        await self._app(scope, await small(scope, receive, held), noted)
        except ClientDisconnect:
            status = 499
        except SplitWiperError as problem:
            await answer(problem)(scope, receive, noted)
        except Exception as problem:
            if begun:  # the response has begun: the connection can only be broken off
                raise
            _log.exception("a call went wrong")
            await unforeseen(problem)(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "unknown")
            took = round(time.perf_counter() - start, 6)
            told = {"method": method, "route": route, "status": status, "seconds": took, **_about(scope)}
            (_refused if status in _UNCOUNTED else _log).info("call", extra=told)
            self._metrics.called(method, route, status, took)

    def _let_in(self, scope: Scope) -> None:
        """Identify, count and authorise the caller. Every call of an identified caller counts, on open paths too.

        Raises:
            IdentityError: the service does not know the caller.
            QuotaError: the caller calls too often.
            ForbiddenError: this kind of caller may not make this call.
        """
        method, path = scope["method"], scope["path"]
        guarded = path.startswith(_GUARDED)
        caller = self._gate.principal(scope) if guarded else self._gate.peer(scope)
        if caller is None:
            return
        scope[CALLER] = caller
        self._rates.take(_named(caller))
        whom = "operator" if path.startswith(_OPERATORS) else "auditor" if path.startswith(_AUDITORS) else "client"
        reads = caller.kind == "auditor" and method == "GET" and path.startswith(_PUBLISHED)
        if guarded and caller.kind != whom and not reads and not path.startswith(_EVERYBODY):
            raise ForbiddenError(f"{caller.kind} {caller.name!r} may not do this: it is for {whom}s.")


def _named(caller: Principal) -> str:
    return f"{caller.kind} {caller.name}"


def _has_body(scope: Scope) -> bool:
    """Return whether the body is so large that reconnecting is cheaper than reading it."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"0")
    return b"transfer-encoding" in headers or not length.isdigit() or int(length) > _CHEAP


def _streams(scope: Scope) -> bool:
    """Return whether the route reads the body itself, as a stream."""
    path: str = scope["path"]
    return path == "/v1/predict" or (scope["method"] == "PATCH" and path.startswith("/v1/uploads/"))


def _about(scope: Scope) -> dict[str, Any]:
    """Return the caller, and the upload, ticket or message that a call was about, for the log."""
    caller: Principal | None = scope.get(CALLER)
    address = scope.get("client")
    told: dict[str, Any] = {"address": str(address[0])} if address else {}
    if caller is not None:
        told["caller"] = _named(caller)
    named = {**scope.get("path_params", {}), **scope.get(ABOUT, {})}
    if named:
        told["about"] = {name: str(value)[:_LONGEST] for name, value in named.items()}
    return told


def answer(problem: SplitWiperError) -> JSONResponse:
    """Return an error as a response. Internal errors are logged for the operator; callers get them without paths."""
    status = next((code for kind, code in _ANSWERS if isinstance(problem, kind)), 500)
    if status in (500, 507):
        _log.error("%s: %s", type(problem).__name__, problem)
        problem = FailingError(_NO_ROOM if status == 507 else _BROKEN)
    headers = {"Retry-After": str(_RETRY[status])} if status in _RETRY else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status in (401, 408, 413):  # the server does not read the rest of the body
        headers["Connection"] = "close"
    return JSONResponse({"kind": type(problem).__name__, "message": str(problem)}, status, headers)


def unforeseen(problem: Exception) -> JSONResponse:
    """Return an unexpected error as a response; a full disk can surface as several errors."""
    if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return answer(DiskFullError(problem.errno, str(problem)))
    return answer(StoreError(f"{type(problem).__name__}: {problem}"))
