"""The auditor's link: it downloads, counts the bytes, and submits the attestation. Every answer is validated first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from splitwiper.errors import InputError, MismatchError, NotFoundError, SplitWiperError, UnreachableError
from splitwiper.service.audit.config import AuditConfig
from splitwiper.service.calls import Calls, LedgerGuard
from splitwiper.service.calls.patience import Patience
from splitwiper.service.certificate import TreeHead
from splitwiper.service.certificate.signed import Count, Hash, OptionalText, refusal
from splitwiper.store import ModelRecord, files
from splitwiper.store.records import labels_in

_TRIES = 5
_FEDERATION = "federation"
_T = TypeVar("_T", dict[str, Any], list[Any])


class AuditShape(BaseModel):
    """A part of an answer; unknown fields are ignored, so that newer servers can send more."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class HeadShape(AuditShape):
    """The ledger's head."""

    size: Count
    root: Hash


class ShardShape(AuditShape):
    """A shard, and its site's signed statement about it."""

    client: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    digest: Hash
    rows: Count
    size: Count
    salt: Hash
    codebook: OptionalText
    outputs: Count
    signed: Annotated[str, Field(max_length=1 << 16)] | None


class ModelShape(AuditShape):
    """The model's record."""

    digest: Hash
    manifest: Hash
    salt: Hash
    labels: list[Any]
    exact: bool
    fingerprint: dict[str, str]
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    losses: list[float]
    codebook: OptionalText
    transcript: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]

    def record(self) -> ModelRecord:
        """Return the record as a server's database has it, or raise `MismatchError`."""
        values = {**self.model_dump(), "salt": bytes.fromhex(self.salt), "losses": tuple(self.losses)}
        try:
            labels = labels_in(json.dumps(self.labels))
        except (TypeError, ValueError, SplitWiperError) as problem:
            raise MismatchError(f"the labels of the server's model cannot be read ({problem}).") from problem
        return ModelRecord(**{**values, "file": "model.safetensors", "labels": labels})


class ManifestShape(AuditShape):
    """One state of the server: the model, the shards that it was trained from, and the digests of the epoch states."""

    head: HeadShape
    model: ModelShape | None
    shards: list[ShardShape]
    epochs: list[Hash]

    def is_same(self, other: ManifestShape) -> bool:
        """Return whether another answer is about the same model and shards, even if the ledger has grown since."""
        return (self.model, self.shards, self.epochs) == (other.model, other.shards, other.epochs)


def read_manifest(answer: Any) -> ManifestShape:
    """Return the server's manifest; `MismatchError` if it is malformed, or lists a client twice."""
    try:
        manifest = ManifestShape.model_validate(answer)
    except ValidationError as problem:
        raise MismatchError(f"the server's manifest cannot be read ({refusal(problem)}).") from problem
    names = {shard.client for shard in manifest.shards}
    if len(names) != len(manifest.shards):  # one of the two would be trained on, and the other one checked
        raise MismatchError("the server's manifest lists a client twice.")
    return manifest


class AuditLink(Calls):
    """An auditor's connection to a server."""

    received = 0
    """Bytes of files downloaded so far."""

    # the server under audit may be hostile: no answer of it may fill the auditor's memory
    most = 1 << 26

    def settings(self) -> str:
        """Return the server's settings, as TOML."""
        return str(self._read("/v1/audit/settings", dict).get("config", ""))

    def ledger(self, size: int) -> list[Any]:
        """Return the first ``size`` ledger entries with their blinding bytes, or fewer if the server has fewer."""
        entries: list[Any] = []
        while len(entries) < size and (more := self._read("/v1/audit/ledger", list, since=len(entries))):
            entries += more
        return entries

    def _read(self, place: str, kind: type[_T], **params: Any) -> _T:
        try:
            answer = self._call("GET", place, params=params).json()
        except (ValueError, RecursionError) as problem:
            if isinstance(problem, SplitWiperError):
                raise
            raise MismatchError(f"{self.url}{place} did not answer with JSON ({str(problem)[:80]}).") from problem
        if not isinstance(answer, kind):
            raise MismatchError(f"{self.url}{place} did not answer as a SplitWiper server does.")
        return answer

    def _call(self, method: str, place: str, **how: Any) -> httpx.Response:
        try:
            return super()._call(method, place, **how)
        except InputError as problem:  # the auditor asks only for what the server listed before
            raise MismatchError(f"the server contradicts itself at {method} {place}: {problem}") from problem

    def compare(self, head: TreeHead) -> None:
        """Check that a head belongs to the same ledger as the signed heads, or raise `ForkError`."""
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

        Raises:
            NotFoundError: the server does not hand it out.
            MismatchError: it has more than ``most`` bytes.
            UnreachableError: it could not be downloaded completely.
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

    Relative paths start from ``folder``; ``out`` keeps the federation's id, the server's keys and the ledger's heads.
    """
    credentials = config.credentials(folder)
    path = out / _FEDERATION
    if not path.exists():
        # without a guard: a head can be checked only once it is known which federation it must be of
        with closing(AuditLink(config.url, **credentials)) as first:
            files.write_bytes(path, str(first.federation()["run"]).encode(), replace=False)
    remedy = f"Keep {out}, which shows what there was, and audit the server as it is now with another folder."
    guard = LedgerGuard(out, path.read_text(encoding="utf-8"), out, restored=remedy)
    return AuditLink(config.url, guard=guard, **credentials)
