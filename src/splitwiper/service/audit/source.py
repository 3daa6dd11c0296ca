"""The auditor's link: it downloads, counts the bytes, and submits the attestation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import httpx

from splitwiper.errors import InputError, MismatchError, NotFoundError, SplitWiperError, UnreachableError
from splitwiper.service.audit.config import AuditConfig
from splitwiper.service.audit.shapes import ManifestShape, read_manifest
from splitwiper.service.calls import Calls, LedgerGuard
from splitwiper.service.calls.patience import Patience
from splitwiper.service.certificate import TreeHead
from splitwiper.store import files

_TRIES = 5
_FEDERATION = "federation"
_T = TypeVar("_T", dict[str, Any], list[Any])


class AuditLink(Calls):
    """An auditor's connection to a server."""

    received = 0
    """Bytes of files downloaded so far."""

    most = 1 << 26

    def settings(self) -> str:
        """Return the server's settings, as TOML."""
        return str(self._read("/v1/audit/settings", dict).get("config", ""))

    def ledger(self, size: int) -> list[Any]:
        """Return the first ``size`` ledger entries with their blinding bytes, or fewer if the server has fewer."""
        out: list[Any] = []
        while len(out) < size and (more := self._read("/v1/audit/ledger", list, since=len(out))):
            out += more
        return out

    def _read(self, place: str, kind: type[_T], **params: Any) -> _T:
        try:
            found = self._call("GET", place, params=params).json()
        except (ValueError, RecursionError) as problem:
            if isinstance(problem, SplitWiperError):
                raise
            raise MismatchError(f"{self.url}{place} did not answer with JSON ({str(problem)[:80]}).") from problem
        if not isinstance(found, kind):
            raise MismatchError(f"{self.url}{place} did not answer as a SplitWiper server does.")
        return found

    def _call(self, method: str, place: str, **how: Any) -> httpx.Response:
        try:
            return super()._call(method, place, **how)
        except InputError as problem:  # the auditor asks only for what the server listed before
            raise MismatchError(f"the server contradicts itself at {method} {place}: {problem}") from problem

    def compare(self, head: TreeHead) -> None:
        """Check that a head belongs to the same ledger as the signed heads.

        Raises:
            ForkError: it does not.
        """
        if self._guard:
            self._guard.pins.compare(head, self.consistency)

    def signed_model(self, head: TreeHead) -> str | None:
        """Return the newest model according to this ledger's signed head; None if the server did not sign the head."""
        signed = self._guard.pins.signed(head) if self._guard else None
        return signed.model if signed else None

    def manifest(self) -> ManifestShape:
        """Return the model and the shards that it was trained from."""
        return read_manifest(self._read("/v1/audit/manifest", dict))

    def attest(self, signed: Mapping[str, Any]) -> None:
        """Submit an attestation."""
        self._call("POST", "/v1/audit/attestations", json=dict(signed))

    def download(self, place: str, target: Path, *, most: int) -> Path:
        """Download a file; resume after an interruption.

        Args:
            place: the path of the call.
            target: the file to write.
            most: the largest size accepted, in bytes.

        Raises:
            NotFoundError: the server does not hand it out.
            MismatchError: it is larger than accepted.
            UnreachableError: it could not be downloaded completely.
            DiskFullError: this machine has no room for it.
        """
        target.unlink(missing_ok=True)
        try:
            patience = Patience(troubles=(httpx.TransportError,), first=0.2, tries=_TRIES)
            patience(lambda: self._fetch(place, target, most))
        except httpx.TransportError as problem:
            raise UnreachableError(f"{self.url}{place} could not be downloaded ({problem}).") from problem
        return target

    def _fetch(self, place: str, target: Path, most: int) -> None:
        # an interrupted download continues where it broke off
        here = target.stat().st_size if target.exists() else 0
        newest, headers = self._guard.before() if self._guard else (None, {})
        headers |= {"Range": f"bytes={here}-"} if here else {}
        with self._http.stream("GET", place, headers=headers, timeout=60.0) as answer:
            if self._guard:
                self._guard.check(answer, newest, self.ask)
            if answer.status_code not in (200, 206):
                raise NotFoundError(f"{self.url}{place} answered {answer.status_code}")
            with files.step("write", target), target.open("ab" if answer.status_code == 206 else "wb") as file:
                for piece in answer.iter_bytes():
                    file.write(piece)
                    self.received += len(piece)
                    if file.tell() > most:
                        raise MismatchError(f"{self.url}{place} sends more than the {most} bytes that it may have.")


def connect(folder: Path, config: AuditConfig, out: Path) -> AuditLink:
    """Return a link to the server under audit. Every answer's head must continue those of earlier audits.

    Args:
        folder: the folder that relative paths start from.
        config: the auditor's settings.
        out: the auditor's own folder. It keeps the federation's id, the server's keys and the ledger's heads.
    """
    credentials = config.credentials(folder)
    path = out / _FEDERATION
    if not path.exists():
        first = AuditLink(config.url, **credentials)
        try:
            files.write_bytes(path, str(first.federation()["run"]).encode(), replace=False)
        finally:
            first.close()
    remedy = f"Keep {out}, which shows what there was, and audit the server as it is now with another folder."
    guard = LedgerGuard(out, path.read_text(encoding="utf-8"), out, restored=remedy)
    return AuditLink(config.url, guard=guard, **credentials)
