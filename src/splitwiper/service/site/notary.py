"""What organisations ask a server besides what every client asks: certificates, proofs, and heads of the ledger.

A client needs a `Link` and nothing of this. A site needs both: it trusts neither the server nor other sites.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

from safetensors import SafetensorError

from splitwiper import errors
from splitwiper.errors import UnreachableError
from splitwiper.service.calls import Calls
from splitwiper.service.certificate import Opening, SignedHead
from splitwiper.service.certificate.canonical import dumps

_SOON = 3.0
"""Time limit in seconds for information that is only nice to have."""
_P = ParamSpec("_P")
_T = TypeVar("_T")


class Notary(Protocol):
    """A server as an organisation sees it that takes nobody at their word. Nothing that it answers has been checked."""

    def register(self, client: str) -> None:
        """Register the key that a site signs with."""
        ...

    def estimate(self) -> dict[str, Any]:
        """Return how long a request would take the server, and its deadline."""
        ...

    def certificate(self, ticket: str) -> dict[str, Any]:
        """Return the certificate of a settled request."""
        ...

    def opening(self, ticket: str) -> Opening:
        """Return the secret that opens the commitments in one of this site's certificates."""
        ...

    def head(self, size: int | None = None) -> SignedHead:
        """Return the ledger's signed head, now or at ``size`` entries."""
        ...

    def consistency(self, old: int, new: int) -> Sequence[str]:
        """Return the proof that the ledger of size ``old`` grew into the ledger of size ``new``."""
        ...

    def countersign(self, witness: Mapping[str, Any]) -> None:
        """Publish a countersigned head for other sites."""
        ...

    def witnesses(self) -> list[dict[str, Any]]:
        """Return the countersigned heads of all sites, as the server relays them."""
        ...

    def model_entry(self) -> dict[str, Any]:
        """Return the ledger's newest entry about a model, with the proof that it is in the ledger."""
        ...

    def newest_model(self) -> str:
        """Return the ledger's newest model according to the last answer's head; empty if heads are not checked."""
        ...

    def attest(self, signed: Mapping[str, Any]) -> None:
        """Submit an attestation of this site."""
        ...

    def ask(self, place: str, **params: Any) -> Any:
        """Return the answer to a question about keys and proofs, whose answer proves itself."""
        ...


def readable(call: Callable[_P, _T]) -> Callable[_P, _T]:
    """Wrap a call whose answer may be anything: report any failure to read it as an `UnreachableError`."""

    @functools.wraps(call)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return call(*args, **kwargs)
        except errors.SplitWiperError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, SafetensorError) as problem:
            raise UnreachableError(
                f"the answer to {call.__name__!r} cannot be read ({type(problem).__name__}: {str(problem)[:80]}): "
                "nothing of it is used. Tell the server's operator."
            ) from problem

    return run


class HttpsNotary(Calls):
    """A server over HTTPS, as an organisation sees it."""

    def estimate(self) -> dict[str, Any]:
        """Return how long a request would take the server, and its deadline."""
        found: dict[str, Any] = self._once("GET", "/v1/estimate", timeout=_SOON).json()
        return found

    @readable
    def certificate(self, ticket: str) -> dict[str, Any]:
        """Return the certificate of a settled request."""
        found = dict(self._call("GET", f"/v1/requests/{ticket}/certificate").json())
        dumps(found)  # must be JSON, because it is stored as received
        return found

    @readable
    def head(self, size: int | None = None) -> SignedHead:
        """Return the ledger's signed head, now or at ``size`` entries; it has not been checked."""
        told = self._call("GET", "/v1/ledger/head", params={"size": size} if size else {}).json()
        return SignedHead.read(told["signed"])

    def countersign(self, witness: Mapping[str, Any]) -> None:
        """Publish a countersigned head for other sites."""
        self._call("POST", "/v1/ledger/witnesses", json=dict(witness))

    @readable
    def witnesses(self) -> list[dict[str, Any]]:
        """Return the countersigned heads of all sites, as the server relays them."""
        return [dict(one) for one in self._call("GET", "/v1/ledger/witnesses").json()]

    @readable
    def model_entry(self) -> dict[str, Any]:
        """Return the ledger's newest entry about a model, with the proof that it is in the ledger."""
        return dict(self._call("GET", "/v1/ledger/model").json())

    def newest_model(self) -> str:
        """Return the ledger's newest model according to the last answer's head; empty if heads are not checked."""
        return self._guard.model if self._guard else ""

    @readable
    def opening(self, ticket: str) -> Opening:
        """Return the secret that opens the commitments in one of this site's certificates."""
        return Opening.from_dict(self._call("GET", f"/v1/requests/{ticket}/opening").json())

    def attest(self, signed: Mapping[str, Any]) -> None:
        """Submit an attestation of this site."""
        self._call("POST", "/v1/attestations", json=dict(signed))
