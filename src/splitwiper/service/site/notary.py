"""What organisations ask a server besides what every client asks: certificates, proofs, and heads of the ledger.

A client needs a `Link` and nothing of this. A site needs both: it trusts neither the server nor other sites.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from safetensors import SafetensorError

from splitwiper import errors
from splitwiper.errors import UnreachableError
from splitwiper.service.calls import Calls
from splitwiper.service.certificate import Opening, SignedHead
from splitwiper.service.certificate.canonical import dumps
from splitwiper.wire import ModelCopy
from splitwiper.wire.tensors import labels_in, read_tensors

_SOON = 3.0
"""Time limit in seconds for information that is only nice to have."""
_P = ParamSpec("_P")
_T = TypeVar("_T")


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


class Notary(Calls):
    """A server as an organisation sees it that takes nobody at their word. Nothing that it answers has been checked."""

    def estimate(self) -> dict[str, Any]:
        """Return how long a request would take the server, and its deadline."""
        estimate: dict[str, Any] = self._once("GET", "/v1/estimate", timeout=_SOON).json()
        return estimate

    @readable
    def certificate(self, ticket: str) -> dict[str, Any]:
        """Return the certificate of a settled request."""
        certificate = dict(self._call("GET", f"/v1/requests/{ticket}/certificate").json())
        dumps(certificate)  # must be JSON, because it is stored as received
        return certificate

    @readable
    def head(self, size: int | None = None) -> SignedHead:
        """Return the ledger's signed head, now or at ``size`` entries; it has not been checked."""
        answer = self._call("GET", "/v1/ledger/head", params={"size": size} if size else {}).json()
        return SignedHead.read(answer["signed"])

    def countersign(self, witness: Mapping[str, Any]) -> None:
        """Publish a countersigned head for other sites."""
        self._call("POST", "/v1/ledger/witnesses", json=dict(witness))

    @readable
    def witnesses(self) -> list[dict[str, Any]]:
        """Return the countersigned heads of all sites, as the server relays them."""
        return list(map(dict, self._call("GET", "/v1/ledger/witnesses").json()))

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

    @readable
    def copy(self) -> ModelCopy:
        """Fetch the server half, without checking which model it is."""
        state, metadata = read_tensors(bytearray(self._call("GET", "/v1/model").content))
        codebook, model, salt = (metadata.get(name, "") for name in ("codebook", "model", "salt"))
        return ModelCopy(state, labels_in(metadata), codebook, model, salt)
