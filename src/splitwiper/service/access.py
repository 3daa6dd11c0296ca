"""Who calls, and how often: identities from certificates or tokens, rates and quotas."""

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
"""Where a connection's certificate is in a request's scope."""
_PREFIX = "bearer "


class Gate:
    """Tells who calls.

    Args:
        trust: of certificates; None where tokens are used.
        tokens: where a proxy terminates TLS.
    """

    def __init__(self, *, trust: Trust | None = None, tokens: Tokens | None = None) -> None:
        self._trust, self._tokens = trust, tokens

    def principal(self, scope: Mapping[str, Any]) -> Principal:
        """Return who calls.

        Raises:
            IdentityError: nobody the service knows.
            StoreError: the server's own files of identities cannot be read.
        """
        try:
            return self._by_certificate(scope) if self._tokens is None else self._by_token(self._tokens, scope)
        except NotFoundError as problem:  # a file of the server's: it concerns no caller
            raise StoreError(str(problem)) from problem

    def peer(self, scope: Mapping[str, Any]) -> Principal | None:
        """Return whose certificate came with a connection, where a call needs no more; None where that cannot be told.

        Raises:
            IdentityError: it was revoked, say.
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
class Rates:
    """Calls by caller: a bucket that fills at a rate, and holds a burst."""

    rate: float
    burst: int
    clock: Callable[[], float] = time.monotonic
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)

    def has(self, who: str) -> bool:
        """Whether a call would be taken."""
        return self._now(who) >= 1

    def _now(self, who: str) -> float:
        now = self.clock()
        left, then = self._left.get(who, (float(self.burst), now))
        return min(float(self.burst), left + max(0.0, now - then) * self.rate)

    def take(self, who: str) -> None:
        """Count a call.

        Raises:
            QuotaError: there were too many of late.
        """
        left = self._now(who)
        if left < 1:
            raise QuotaError(f"{who} calls too often: at most {self.rate:g} times a second. Wait a little, and go on.")
        self._left[who] = (left - 1, self.clock())


class Held:
    """Bytes that calls keep in memory.

    No client may hold more than is left free then. So one alone gets half of it all, and however many hold what they
    may, there is room for the next.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._mine: Counter[str] = Counter()

    @contextmanager
    def keeping(self, client: str) -> Iterator[Keeping]:
        """Count what one call of a client takes, until it is answered."""
        mine = Keeping(self, client)
        try:
            yield mine
        finally:
            self._give(client, mine.taken)

    def take(self, client: str, size: int) -> None:
        """Count bytes of a client.

        Raises:
            QuotaError: it would have more than is left for others.
        """
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
class Keeping:
    """What one call keeps in memory."""

    _held: Held
    _client: str
    taken: int = 0

    def take(self, size: int) -> None:
        """Count bytes.

        Raises:
            QuotaError: there is no memory for more just now.
        """
        self._held.take(self._client, size)
        self.taken += size
