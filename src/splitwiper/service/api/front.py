"""The front door: who calls is known, counted and let through, or not, before anything they sent is looked at."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
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
from splitwiper.service.access import Gate, Held, Rates
from splitwiper.service.api.receiving import small
from splitwiper.service.api.shared import ABOUT
from splitwiper.service.heads import Heads
from splitwiper.service.identity import Principal
from splitwiper.service.metrics import Metrics

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]
CALLER = "splitwiper.caller"
_log = logging.getLogger("splitwiper.service")
_refused = logging.getLogger("splitwiper.service.refused")
_UNCOUNTED = (401, 429)
"""Calls that were turned away, and so may come at any rate: few of them are logged."""
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
    "the server has no room left on its disk; its operator was told. Nothing acknowledged was lost: make the same call "
    "again when there is room."
)
_BROKEN = (
    "the server cannot do this just now; what is wrong is in its log, for its operator. Nothing acknowledged was lost: "
    "make the same call again later."
)
_EVERYBODY = ("/v1/federation", "/v1/initial")
_OPERATORS = ("/v1/status", "/v1/operator", "/metrics")
_AUDITORS = ("/v1/audit/",)
_PUBLISHED = ("/v1/keys", "/v1/ledger/")
"""What auditors may read besides, as clients do: nothing in it is about one client."""
_GUARDED = ("/v1/", "/metrics")
_CHEAP = 1 << 18
"""Bytes of a body that is read to its end although nobody wants it."""
_LONGEST = 64
"""Characters of an upload's or a ticket's name that are logged: callers may send any."""
_SHOWING = "/v1/"
"""Answers of these paths carry the ledger's head."""
_CHECKING = ("client", "auditor")
"""Who refuses an answer without one."""


class Front:
    """Stands before the application.

    Args:
        app: what is behind.
        gate: tells who calls.
        rates: how often anybody may.
        held: what small bodies take in memory.
        metrics: count what comes.
        heads: the ledger's signed head, which goes out with every answer to somebody who is known.
    """

    def __init__(self, app: App, gate: Gate, rates: Rates, held: Held, metrics: Metrics, heads: Heads) -> None:
        self._app, self._gate, self._rates, self._held, self._metrics = app, gate, rates, held, metrics
        self._heads = heads

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Let a call through, and write a line about it: no label, no data, no token.

        HEAD is GET without the body, for every path that has a GET.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, start, status, begun, dropped = scope["method"], time.perf_counter(), 500, False, False
        bare = method == "HEAD"
        if bare:
            scope = {**scope, "method": "GET"}

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal status, begun, dropped
            if dropped:
                return
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                if status == 429 and _has_body(scope):  # it was not taken in, and is not read now
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
                if CALLER in scope and scope["path"].startswith(_SHOWING):  # now: it covers what the answer tells of
                    shown = await self._heads.headers(scope["headers"])
                    if not shown and scope[CALLER].kind in _CHECKING:  # say that the call may be repeated
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
                with self._held.keeping(scope[CALLER].name) as held:
                    await self._app(scope, await small(scope, receive, held), noted)
        except ClientDisconnect:
            status = 499
        except SplitWiperError as problem:
            await answer(problem)(scope, receive, noted)
        except Exception as problem:
            if begun:  # the answer was under way: all that is left is to break off
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
        """Tell who calls, count it, and let them through; any call counts where it is known whose it is.

        Raises:
            IdentityError: nobody that the service knows.
            QuotaError: they call too often.
            ForbiddenError: this is not for them.
        """
        method, path = scope["method"], scope["path"]
        guarded = path.startswith(_GUARDED)
        caller = self._gate.principal(scope) if guarded else self._gate.peer(scope)
        if caller is None:
            return
        scope[CALLER] = caller
        self._rates.take(f"{caller.kind} {caller.name}")
        whom = "operator" if path.startswith(_OPERATORS) else "auditor" if path.startswith(_AUDITORS) else "client"
        reads = caller.kind == "auditor" and method == "GET" and path.startswith(_PUBLISHED)
        if guarded and caller.kind != whom and not reads and not path.startswith(_EVERYBODY):
            raise ForbiddenError(f"{caller.kind} {caller.name!r} may not do this: it is for {whom}s.")


def _has_body(scope: Scope) -> bool:
    """Whether a call sends so much that it is cheaper to connect anew than to read it."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"0")
    return b"transfer-encoding" in headers or not length.isdigit() or int(length) > _CHEAP


def _streams(scope: Scope) -> bool:
    """Whether a call looks itself at what is sent, as it comes."""
    path: str = scope["path"]
    return path == "/v1/predict" or (scope["method"] == "PATCH" and path.startswith("/v1/uploads/"))


def _about(scope: Scope) -> dict[str, Any]:
    """Return who made a call, and which upload, ticket or message it was about, for the log."""
    caller: Principal | None = scope.get(CALLER)
    address = scope.get("client")
    told: dict[str, Any] = {"address": str(address[0])} if address else {}
    if caller is not None:
        told["caller"] = f"{caller.kind} {caller.name}"
    named = {**scope.get("path_params", {}), **scope.get(ABOUT, {})}
    if named:
        told["about"] = {name: str(value)[:_LONGEST] for name, value in named.items()}
    return told


def answer(problem: SplitWiperError) -> JSONResponse:
    """An error as an answer. Trouble of the server's own is told to its operator, and to callers without its paths."""
    status = next((code for kind, code in _ANSWERS if isinstance(problem, kind)), 500)
    if status in (500, 507):
        _log.error("%s: %s", type(problem).__name__, problem)
        problem = FailingError(_NO_ROOM if status == 507 else _BROKEN)
    headers = {"Retry-After": str(_RETRY[status])} if status in _RETRY else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status in (401, 408, 413):  # the rest of the body is not waited for
        headers["Connection"] = "close"
    return JSONResponse({"kind": type(problem).__name__, "message": str(problem)}, status, headers)


def unforeseen(problem: Exception) -> JSONResponse:
    """An error that nobody thought of, as an answer; a full disk shows itself in many ways."""
    if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return answer(DiskFullError(problem.errno, str(problem)))
    return answer(StoreError(f"{type(problem).__name__}: {problem}"))
