"""Who is calling: the caller's identity, from a certificate or a token."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from splitwiper.errors import IdentityError, NotFoundError, StoreError
from splitwiper.service.identity import Principal, Tokens, Trust

PEER = "splitwiper.peer"
"""Key under which a request's scope holds the connection's client certificate."""
_PREFIX = "bearer "


class Authenticator:
    """Identifies callers by client certificates, or by bearer tokens where a proxy terminates TLS."""

    def __init__(self, *, trust: Trust | None = None, tokens: Tokens | None = None) -> None:
        self._trust, self._tokens = trust, tokens

    def principal(self, scope: Mapping[str, Any]) -> Principal:
        """Return the caller's identity.

        Raises:
            IdentityError: the service does not know the caller.
            StoreError: the server's own identity files cannot be read.
        """
        try:
            # never both: behind a proxy, the connection's certificate is the proxy's
            return self._by_certificate(scope) if self._tokens is None else self._by_token(self._tokens, scope)
        except NotFoundError as problem:  # one of the server's own files: not the caller's fault
            raise StoreError(str(problem)) from problem

    def peer(self, scope: Mapping[str, Any]) -> Principal | None:
        """Identify the caller of an open endpoint by certificate, if it sent a usable one; None otherwise.

        Raises:
            IdentityError: the certificate is not accepted, for example because it was revoked.
        """
        if self._tokens is None:
            with suppress(StoreError, NotFoundError):
                return self._by_certificate(scope)
        return None

    def _by_token(self, tokens: Tokens, scope: Mapping[str, Any]) -> Principal:
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
        # a proxy might check the first of several headers, and this server another one
        if len(given) > 1:
            raise IdentityError("the call has several 'Authorization' headers: send one.")
        if not given or not given[0].lower().startswith(_PREFIX):
            raise IdentityError("no token came with the call: send 'Authorization: Bearer TOKEN'.")
        return tokens.check(given[0][len(_PREFIX) :].strip())

    def _by_certificate(self, scope: Mapping[str, Any]) -> Principal:
        certificate = scope.get(PEER)
        if self._trust is None or not certificate:
            raise IdentityError("no client certificate came with the connection.")
        return self._trust.principal(certificate)
