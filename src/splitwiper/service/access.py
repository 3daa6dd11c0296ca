"""Access control: the caller's identity from a certificate or token, rate limits and memory quotas."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from splitwiper.errors import IdentityError, NotFoundError, QuotaError, StoreError
from splitwiper.service.identity import Principal, Tokens, Trust

PEER = "splitwiper.peer"
"""Key under which a request's scope holds the connection's client certificate."""
_PREFIX = "bearer "


class Authenticator:
    """Identifies callers.

    Args:
        trust: checks client certificates; None if tokens are used.
        tokens: checks bearer tokens, where a proxy terminates TLS.
    """

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


@dataclass
class RateLimiter:
    """A token bucket for each caller: it refills at ``rate`` calls a second and holds at most ``burst``."""

    rate: float
    burst: int
    clock: Callable[[], float] = time.monotonic
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)

    def has(self, who: str) -> bool:
        """Return whether a call would be allowed now."""
        return self._now(who) >= 1

    def _now(self, who: str) -> float:
        now = self.clock()
        left, then = self._left.get(who, (float(self.burst), now))
        return min(float(self.burst), left + max(0.0, now - then) * self.rate)

    def take(self, who: str) -> None:
        """Count a call.

        Raises:
            QuotaError: the caller made too many calls recently.
        """
        left = self._now(who)
        if left < 1:
            raise QuotaError(f"{who} calls too often: at most {self.rate:g} times a second. Wait a little, and go on.")
        self._left[who] = (left - 1, self.clock())


class MemoryQuota:
    """Limits the memory that request bodies take.

    No client may hold more than is then left free. A single client therefore gets at most half of the total, and
    however many clients hold their maximum, there is room for the next one.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._mine: Counter[str] = Counter()

    @contextmanager
    def keeping(self, client: str) -> Iterator[Reservation]:
        """Count the memory that one call of a client takes, and release it when the call is answered."""
        mine = Reservation(self, client)
        try:
            yield mine
        finally:
            self._give(client, mine.taken)

    def take(self, client: str, size: int) -> None:
        """Count bytes for a client.

        Raises:
            QuotaError: the client would hold more than is left for others.
        """
        # its total after this, against what would then be free: that keeps half of the memory for the others
        if self._mine[client] + size > self._free - size:
            raise QuotaError(
                f"what {client!r} sends just now takes {self._mine[client]:,} bytes of memory, and {self._free:,} are "
                "free for everybody. Wait a little, or send it in smaller parts."
            )
        self._give(client, -size)

    def _give(self, client: str, size: int) -> None:
        self._free += size
        self._mine[client] -= size
        if not self._mine[client]:
            del self._mine[client]


@dataclass
class Reservation:
    """The memory that one call holds."""

    _held: MemoryQuota
    _client: str
    taken: int = 0

    def take(self, size: int) -> None:
        """Count bytes for this call.

        Raises:
            QuotaError: there is not enough free memory at the moment.
        """
        self._held.take(self._client, size)
        self.taken += size
