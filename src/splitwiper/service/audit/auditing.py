"""One audit, from the first call to the attestation.

The auditor trusts nobody: it builds the model itself, reads the whole ledger, takes no shard that its site did not
sign, and recomputes the server half, wholly or a random choice of epochs, in a folder of its own.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitwiper.errors import BusyError, NotFoundError
from splitwiper.numerics import fingerprint, pick_device
from splitwiper.server.transcript import detection
from splitwiper.service.audit.config import AuditConfig, site_keys
from splitwiper.service.audit.drawing import forget_draw
from splitwiper.service.audit.ledger import model_finding, play, shard_findings
from splitwiper.service.audit.recomputing import Recomputed, recompute
from splitwiper.service.audit.shapes import ManifestShape
from splitwiper.service.audit.source import AuditLink, connect
from splitwiper.service.audit.workplace import Workplace
from splitwiper.service.calls.patience import Patience
from splitwiper.service.certificate import Attestation, Checked, Finding, Head, SigningKey
from splitwiper.service.identity.folders import locked
from splitwiper.store import ModelRecord, files
from splitwiper.store.keys import check_private
from splitwiper.store.replay import Replay
from splitwiper.store.tickets import now
from splitwiper.wire.commitments import model_commitment

KEY, PUBLIC = "auditor-key.pem", "auditor-key.pub.pem"
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Audited:
    """What came out of an audit.

    Attributes:
        checked: what was looked at; ``exact`` where the whole server half was recomputed and is equal, bit for bit.
        epochs: the epochs that were recomputed.
        of: how many there are.
        seconds: what recomputing took.
        share: that, as a share of what the server's training took.
        received: bytes that were downloaded.
        attested: whether an attestation was signed and handed over.
    """

    checked: Checked
    epochs: tuple[int, ...] = ()
    of: int = 0
    seconds: float = 0.0
    share: float = 0.0
    received: int = 0
    attested: bool = False

    def __bool__(self) -> bool:
        """Whether all that was looked at is right."""
        return self.checked.holds

    def caught(self, forged: int) -> float:
        """The probability that a server is caught that forged so many epochs; 0 where nothing was recomputed."""
        return detection(self.of, len(self.epochs), min(forged, self.of)) if self.of else 0.0


def audit(
    config: AuditConfig,
    folder: Path,
    out: Path,
    *,
    epochs: int | None = None,
    keep: bool = False,
    progress: Progress | None = None,
    patience: float = 0.0,
) -> Audited:
    """Audit a server, and hand over an attestation of what came out.

    Args:
        config: where the server is, and which model it should train.
        folder: what relative paths in it are relative to.
        out: the auditor's own folder: its key, the heads of the ledger that it saw, and what it downloads.
        epochs: how many epochs to recompute, drawn at random; all unless given.
        keep: keep what was downloaded; it is erased otherwise.
        progress: told of long work.
        patience: seconds for which to begin again while training is under way, or where a shard was replaced.

    Raises:
        BusyError: training is under way, a shard was replaced meanwhile, or another audit works in this folder.
        ForkError: the server shows another ledger than at an earlier audit.
        MismatchError: what the server shows is not its ledger.
    """
    known = site_keys(folder, config)
    with (
        locked(out, busy=f"another audit works in {out}: wait for it, or give --out another folder."),
        closing(connect(folder, config, out)) as link,
    ):
        key = own_key(out)  # from the first audit on, whether or not anything can be signed

        def attempt() -> Audited:
            told = link.manifest()
            head = Head(told.head.size, told.head.root)
            link.compare(head)
            played = play(link.ledger(head.size), head)
            with _downloads(out / "downloads", keep=keep) as place:
                return _audited(config, out, key, link, told, head, played, known, place, epochs, progress)

        return Patience(patience, troubles=(BusyError,), longest=2.0)(attempt)


def _audited(
    config: AuditConfig,
    out: Path,
    key: SigningKey,
    link: AuditLink,
    told: ManifestShape,
    head: Head,
    played: Replay,
    known: Mapping[str, str] | None,
    place: Path,
    epochs: int | None,
    progress: Progress | None,
) -> Audited:
    model = told.model.record() if told.model else None
    findings = [Finding("ledger", "holds", f"{head}, every entry of it")]
    findings += shard_findings(told.shards, played, known)
    findings.append(model_finding(model, played, link.signed_model(head)))
    done = Recomputed()
    if not _is_wrong(findings):
        try:
            work = Workplace(config, link, told, played, place, progress)
            for finding in work.prepare(model, sampled=epochs is not None):
                findings.append(finding)
            if not _is_wrong(findings) and model is not None:
                start = time.perf_counter()
                done = recompute(work, model, epochs)
                findings += done.findings
                done.seconds = time.perf_counter() - start
        except NotFoundError as problem:  # a network that fails looks the same, so nothing is signed
            findings.append(Finding("downloads", "unverifiable", str(problem).removesuffix(".")))
    checked = Checked(tuple(findings))
    attested = _is_attested(checked, whole=model is None or bool(done.of))
    if attested:
        link.attest(_attestation(config, key, played, head, model, done, checked))
        forget_draw(out)
    share = done.seconds / model.seconds if model and model.seconds else 0.0
    return Audited(checked, done.epochs, done.of, done.seconds, share, link.received, attested)


def _is_attested(checked: Checked, *, whole: bool) -> bool:
    """Whether the auditor signs what came out.

    It does not where something was missing, nor where settings differ: that may be a mistake in its own file.
    """
    if any(finding.what == "settings" and finding.outcome == "mismatch" for finding in checked.checks):
        return False
    return checked.outcome == "mismatch" or (checked.outcome != "unverifiable" and whole)


def _is_wrong(findings: Sequence[Finding]) -> bool:
    return any(finding.outcome in ("mismatch", "unverifiable", "not_comparable") for finding in findings)


def _attestation(
    config: AuditConfig,
    key: SigningKey,
    played: Replay,
    head: Head,
    model: ModelRecord | None,
    done: Recomputed,
    checked: Checked,
) -> dict[str, Any]:
    outcome = "exact" if checked.outcome == "holds" else checked.outcome  # what was recomputed is in `epochs`
    return Attestation(
        federation=str(played.made.get("run")),
        model=model_commitment(model.salt, model.digest) if model else "",
        shard="",
        size=head.size,
        root=head.root,
        role="auditor",
        name=config.name,
        epochs=done.epochs,
        of=done.of,
        outcome=outcome,
        fingerprint=done.fingerprint or fingerprint(pick_device("cpu"), 1),
        made=now(),
        key=key.public.raw.hex(),
    ).sign(key)


def own_key(out: Path) -> SigningKey:
    """Return the auditor's key; made when it is first asked for, with its public half beside it."""
    path = out / KEY
    if not path.exists():
        files.write_bytes(path, SigningKey.generate().pem(), replace=False)
    check_private(path, remedy="if somebody may have read it, remove it, and give verifiers the new public half")
    key = SigningKey.from_pem(path.read_bytes())
    if not (out / PUBLIC).exists():
        files.write_bytes(out / PUBLIC, key.public.pem())
    return key


@contextmanager
def _downloads(place: Path, *, keep: bool) -> Iterator[Path]:
    """A folder for what is downloaded; other sites' activations are in it, so it is erased in the end."""
    shutil.rmtree(place, ignore_errors=True)  # what an audit left that was killed
    files.make_folder(place)
    try:
        yield place
    finally:
        if not keep:
            shutil.rmtree(place)
