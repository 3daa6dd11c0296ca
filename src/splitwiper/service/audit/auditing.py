"""One audit, from the first call to the attestation.

The auditor trusts nobody: it builds the model itself, reads the whole ledger, accepts only shards that their sites
signed, and recomputes the server half, completely or for a random choice of epochs, in a folder of its own.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitwiper.checks import Check, Verification, run_check
from splitwiper.errors import BusyError, NotFoundError
from splitwiper.numerics import fingerprint, pick_device
from splitwiper.progress import Progress
from splitwiper.server.transcript import detection
from splitwiper.service.audit.config import AuditConfig, site_keys
from splitwiper.service.audit.ledger import check_model, check_shards, play
from splitwiper.service.audit.recomputing import Recomputed, forget_draw, recompute
from splitwiper.service.audit.source import AuditLink, connect
from splitwiper.service.audit.workplace import Workplace
from splitwiper.service.calls.patience import Patience
from splitwiper.service.certificate import Attestation, SigningKey, TreeHead
from splitwiper.store import ModelRecord, files
from splitwiper.store.keys import check_private
from splitwiper.store.replay import Replay
from splitwiper.store.tickets import now
from splitwiper.wire.commitments import model_commitment

KEY, PUBLIC = "auditor-key.pem", "auditor-key.pub.pem"


@dataclass(frozen=True)
class Audited:
    """The result of an audit.

    Attributes:
        checked: the checks; ``exact`` if the whole server half was recomputed and is equal, bit for bit.
        epochs: the epochs that were recomputed, and ``of`` how many the training had.
        seconds: the time that recomputing took, and ``share`` that time as a share of the server's training time.
        received: the number of bytes downloaded.
        attested: whether an attestation was signed and submitted.
    """

    checked: Verification
    epochs: tuple[int, ...] = ()
    of: int = 0
    seconds: float = 0.0
    share: float = 0.0
    received: int = 0
    attested: bool = False

    def __bool__(self) -> bool:
        """Return whether every check is in order."""
        return self.checked.holds

    def caught(self, forged: int) -> float:
        """Return the probability of catching a server that forged this many epochs; 0 if nothing was recomputed."""
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
    """Audit a server, and submit an attestation of the result.

    Args:
        config: the server's address, and the model that it should train.
        folder: the folder that relative paths in ``config`` start from.
        out: the auditor's own folder: its key, the ledger heads that it saw, and its downloads.
        epochs: how many epochs to recompute, drawn at random; all by default.
        keep: keep the downloads; otherwise they are erased.
        progress: called with the progress of long work.
        patience: seconds for which to start over if training is running or a shard was replaced.

    Raises:
        BusyError: training is running, a shard was replaced during the audit, or another audit uses this folder.
        ForkError: the server shows another ledger than at an earlier audit.
        MismatchError: what the server shows does not match its ledger.
    """
    known = site_keys(folder, config)
    with (
        files.locked(out, busy=f"another audit works in {out}: wait for it, or give --out another folder."),
        closing(connect(folder, config, out)) as link,
    ):
        # the key is made at the first audit, whether or not anything can be signed
        auditor = _Auditor(config, out, own_key(out), link, known, epochs, progress)
        return Patience(patience, troubles=(BusyError,), longest=2.0)(lambda: auditor.audit(keep=keep))


@dataclass(frozen=True)
class _Auditor:
    """Everything that one audit needs; see `audit`."""

    config: AuditConfig
    out: Path
    key: SigningKey
    link: AuditLink
    known: Mapping[str, str] | None
    epochs: int | None
    progress: Progress | None

    def audit(self, *, keep: bool) -> Audited:
        """Make one attempt at the audit, and submit the attestation."""
        manifest = self.link.manifest()
        head = TreeHead(manifest.head.size, manifest.head.root)
        # the manifest's head is not signed: it must be of the ledger whose signed heads this and other calls showed
        self.link.compare(head)
        played = play(self.link.ledger(head.size), head)
        model = manifest.model.record() if manifest.model else None
        checks = [Check("ledger", "holds", f"{head}, every entry of it")]
        checks += check_shards(manifest.shards, played, self.known)
        signed = self.link.signed_model(head)
        checks.append(run_check("model", lambda: check_model(model, played, signed)))
        done = Recomputed()
        if not _is_wrong(checks):  # otherwise nothing is downloaded, nor built from what the server says
            with _downloads(self.out / "downloads", keep=keep) as folder:
                work = Workplace(self.config, self.link, manifest, played.made, folder, self.progress)
                done = self._recompute(work, model, checks)
        checked = Verification(tuple(checks))
        attested = _is_attested(checked, whole=model is None or bool(done.of))
        # signed only after everything is checked; the draw of epochs stands until then
        if attested:
            self.link.attest(self._attestation(played, head, model, done, checked))
            forget_draw(self.out)
        # the server's own figure, so no more than a hint of how costly the audit was
        share = done.seconds / model.seconds if model and model.seconds else 0.0
        return Audited(checked, done.epochs, done.of, done.seconds, share, self.link.received, attested)

    def _recompute(self, work: Workplace, model: ModelRecord | None, checks: list[Check]) -> Recomputed:
        """Download everything and recompute the server half, unless something is wrong before; add the checks."""
        done = Recomputed()
        try:
            for check in work.prepare(model, sampled=self.epochs is not None):
                checks.append(check)  # one by one: those before an error count
            if not _is_wrong(checks) and model is not None:
                start = time.perf_counter()
                done = recompute(work, model, self.epochs)
                checks += done.checks
                done.seconds = time.perf_counter() - start
        except NotFoundError as problem:  # a failing network looks the same, so nothing is signed
            checks.append(Check("downloads", "unverifiable", str(problem).removesuffix(".")))
        return done

    def _attestation(
        self, played: Replay, head: TreeHead, model: ModelRecord | None, done: Recomputed, checked: Verification
    ) -> dict[str, Any]:
        return Attestation(
            federation=str(played.made.get("run")),
            model=model_commitment(model.salt, model.digest) if model else "",
            shard="",
            size=head.size,
            root=head.root,
            role="auditor",
            name=self.config.name,
            epochs=done.epochs,
            of=done.of,
            outcome="exact" if checked.outcome == "holds" else checked.outcome,  # `epochs` says what was recomputed
            fingerprint=done.fingerprint or fingerprint(pick_device("cpu"), 1),
            made=now(),
            key=self.key.public.raw.hex(),
        ).sign(self.key)


def _is_attested(checked: Verification, *, whole: bool) -> bool:
    """Return whether the auditor signs the result.

    It does not sign if something was missing, nor if settings differ: that may be a mistake in its own file.
    """
    if ("settings", "mismatch") in {(check.what, check.outcome) for check in checked.checks}:
        return False
    return checked.outcome == "mismatch" or (checked.outcome != "unverifiable" and whole)


def _is_wrong(checks: Sequence[Check]) -> bool:
    return not Verification(tuple(checks)).holds


def own_key(out: Path) -> SigningKey:
    """Return the auditor's key. It is created on first use, and its public half stored next to it."""
    path = out / KEY
    if not path.exists():
        files.write_bytes(path, SigningKey.generate().pem(), replace=False)
    check_private(path, remedy="if somebody may have read it, remove it, and give verifiers the new public half")
    key = SigningKey.from_pem(path.read_bytes())
    if not (out / PUBLIC).exists():
        files.write_bytes(out / PUBLIC, key.public.pem())
    return key


@contextmanager
def _downloads(folder: Path, *, keep: bool) -> Iterator[Path]:
    """Make a folder for downloads. They contain other sites' activations, so it is erased at the end."""
    shutil.rmtree(folder, ignore_errors=True)  # left by an audit that was killed
    files.make_folder(folder)
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder)
