"""Calls to a server over HTTPS, for sites and auditors: retried if unanswered, with every ledger head checked."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any

import httpx

from splitwiper import errors
from splitwiper.errors import MismatchError, SplitWiperError, UnreachableError
from splitwiper.service.calls.guard import LedgerGuard
from splitwiper.service.calls.patience import Patience

_KEEPALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
"""Keep-alive settings that detect a dead server within a minute, even in a call without a time limit."""
for _name, _value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
    if hasattr(socket, _name):  # not every system has them
        _KEEPALIVE.append((socket.IPPROTO_TCP, getattr(socket, _name), _value))


class Calls:
    """A connection to a server.

    Args:
        url: the server's address, ``https://host:port``.
        context: certificates, see `splitwiper.service.identity.client_context`; None if ``url`` is that of a proxy with
            a certificate that the system trusts.
        token: a bearer token sent with every call; empty if certificates are used.
        patience: seconds to wait for an answer.
        tries: how often an unanswered call is tried; every call may safely be repeated.
        guard: checks the ledger's head in every answer before it is used; None before the server is known.
    """

    most: int | None = None
    """The largest answer that is read, in bytes; None for no limit."""

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext | None = None,
        *,
        token: str = "",
        patience: float = 60.0,
        tries: int = 5,
        guard: LedgerGuard | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._guard = guard
        self._tries, self._patience = tries, patience
        self._http = httpx.Client(
            base_url=self.url,
            transport=httpx.HTTPTransport(
                verify=context if context is not None else True, socket_options=_KEEPALIVE, trust_env=False
            ),
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(patience, connect=min(patience, 10.0)),
            trust_env=False,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def federation(self) -> dict[str, Any]:
        """Return what joining clients must agree with."""
        settings: dict[str, Any] = self._call("GET", "/v1/federation").json()
        return settings

    def initial(self) -> bytes:
        """Return the client half's first weights, as a safetensors file."""
        return self._call("GET", "/v1/initial").content

    def consistency(self, old: int, new: int) -> list[str]:
        """Return the proof that the ledger of size ``old`` grew into the ledger of size ``new``."""
        answer = self._call("GET", "/v1/ledger/consistency", params={"old": old, "new": new})
        try:
            proof: list[str] = answer.json()
        except (ValueError, RecursionError):
            return []  # an empty proof proves nothing
        return proof

    def ask(self, place: str, **params: Any) -> Any:
        """Return the answer to a GET call without checking its head: for keys and proofs, which the caller checks.

        Raises:
            UnreachableError: the answer is not JSON.
            SplitWiperError: the error that the server reports.
        """
        answer = _successful(self._send("GET", place, params=params))
        try:
            return answer.json()
        except (ValueError, RecursionError) as problem:
            raise UnreachableError(f"{answer.url} answered not as a SplitWiper server does.") from problem

    def _call(self, method: str, place: str, **how: Any) -> httpx.Response:
        """Make one call, and retry if no answer came. The error that the server reports, if any, is raised."""
        patience = Patience(troubles=(httpx.TransportError, errors.QuotaError), first=0.2, tries=self._tries)
        try:
            return patience(lambda: self._once(method, place, **how), hopeless=_is_refused)
        except httpx.TransportError as problem:
            raise UnreachableError(
                f"{self.url} cannot be reached ({problem}). Is the server up, is the address right, and is the "
                "certificate one that its operator issued? Nothing is lost: the same call may be made again."
            ) from problem

    def _once(self, method: str, place: str, **how: Any) -> httpx.Response:
        if self._guard is None:
            return _successful(self._send(method, place, **how))
        if method != "GET" and not self._guard.met:  # check the ledger before sending anything
            self._once("GET", "/v1/ledger/head")
        newest, headers = self._guard.before()
        answer = self._send(method, place, **{**how, "headers": {**how.get("headers", {}), **headers}})
        # before anything in the answer is used, even an error
        self._guard.check(answer, newest, self.ask)
        return _successful(answer)

    def _send(self, method: str, place: str, **how: Any) -> httpx.Response:
        """Send a call and read the answer, up to the size limit."""
        if self.most is None:
            return self._http.request(method, place, **how)
        body = bytearray()
        with self._http.stream(method, place, **how) as answer:
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > self.most:
                    raise MismatchError(
                        f"{self.url} answered {method} {place} with more than {self.most} bytes: no SplitWiper server "
                        "does. Nothing of it is used."
                    )
        # the body is already decompressed, so this header would have it decompressed again
        headers = [(name, value) for name, value in answer.headers.multi_items() if name != "content-encoding"]
        return httpx.Response(answer.status_code, headers=headers, content=bytes(body), request=answer.request)


def _is_refused(problem: Exception) -> bool:
    """Return whether a certificate was refused, so that another attempt fails too."""
    if not isinstance(problem, httpx.TransportError):
        return False
    return isinstance(problem.__cause__, ssl.SSLError) or "CERTIFICATE" in str(problem).upper()


def _successful(answer: httpx.Response) -> httpx.Response:
    """Return an answer, or raise the error that the server reports, as an exception of this package."""
    if answer.is_success:
        return answer
    try:
        content = answer.json()
        kind, message = str(content["kind"]), str(content["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UnreachableError(
            f"{answer.url} answered {answer.status_code}, and not as a SplitWiper server does."
        ) from None
    # the server chooses the name: only this package's errors may come of it
    known: Callable[[str], SplitWiperError] | None = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, SplitWiperError):
        raise known(message)
    raise UnreachableError(f"{answer.url} answered {answer.status_code}: {message}")
