"""The auditor's link: it downloads, counts what it downloads, and hands its attestation over."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from splitwiper.errors import NotFoundError, UnreachableError
from splitwiper.service.audit.config import AuditConfig
from splitwiper.service.calls import Calls, LedgerGuard
from splitwiper.service.certificate import Head
from splitwiper.store import files

_TRIES = 5
_FEDERATION = "federation"


class AuditLink(Calls):
    """An auditor's connection to a server."""

    received = 0
    """Bytes of files that were downloaded."""

    def settings(self) -> dict[str, Any]:
        """The server's settings."""
        found: dict[str, Any] = self._call("GET", "/v1/audit/settings").json()
        return found

    def ledger(self) -> list[dict[str, Any]]:
        """Every entry of the ledger with its blinding bytes."""
        out: list[dict[str, Any]] = []
        while more := self._call("GET", "/v1/audit/ledger", params={"since": len(out)}).json():
            out += more
        return out

    def compare(self, head: Head) -> None:
        """Check that a head is of the ledger that the signed heads are of.

        Raises:
            ForkError: it is not.
        """
        if self._guard:
            self._guard.pins.compare(head, self.consistency)

    def manifest(self) -> dict[str, Any]:
        """The model and the shards that it was trained from."""
        found: dict[str, Any] = self._call("GET", "/v1/audit/manifest").json()
        return found

    def attest(self, signed: Mapping[str, Any]) -> None:
        """Hand over an attestation."""
        self._call("POST", "/v1/audit/attestations", json=dict(signed))

    def download(self, place: str, target: Path) -> Path:
        """Download a file; after an interruption it goes on where it was.

        Raises:
            NotFoundError: the server has it no longer.
            UnreachableError: it could not be had whole.
        """
        target.unlink(missing_ok=True)
        for attempt in range(1, _TRIES + 1):
            try:
                self._fetch(place, target)
                return target
            except httpx.TransportError as problem:
                if attempt == _TRIES:
                    raise UnreachableError(f"{self.url}{place} could not be downloaded ({problem}).") from problem
                time.sleep(0.1 * 2**attempt)
        raise AssertionError("not reached")

    def _fetch(self, place: str, target: Path) -> None:
        here = target.stat().st_size if target.exists() else 0
        newest, headers = self._guard.before() if self._guard else (None, {})
        headers |= {"Range": f"bytes={here}-"} if here else {}
        with self._http.stream("GET", place, headers=headers, timeout=60.0) as answer, target.open("ab") as file:
            if self._guard:
                self._guard.check(answer, newest, self.ask)
            if answer.status_code not in (200, 206):
                raise NotFoundError(f"{self.url}{place} answered {answer.status_code}: the manifest may have moved on.")
            if answer.status_code == 200:
                file.truncate(0)
            for piece in answer.iter_bytes():
                file.write(piece)
                self.received += len(piece)


def connect(folder: Path, config: AuditConfig, out: Path) -> AuditLink:
    """Return a link to the server that is to be audited. Every answer's head continues those of earlier audits.

    Args:
        folder: what relative paths are relative to.
        config: where the server is.
        out: the auditor's own folder. It remembers the federation, the server's keys and the ledger's heads.
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
