"""Recomputing the server half, wholly or a random choice of its epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from splitwiper.errors import ConfigError, InputError, TrainingError
from splitwiper.federation.verify import differing
from splitwiper.numerics import pick_device, reproducible
from splitwiper.seeding import state_digest
from splitwiper.server.transcript import (
    EpochCheck,
    Transcript,
    check_end,
    check_first,
    detection,
    recompute_epoch,
    sample_epochs,
)
from splitwiper.service.audit.workplace import Workplace
from splitwiper.service.certificate.findings import RECOMPUTED, Finding
from splitwiper.store import ModelRecord
from splitwiper.store.tensors import load_state

_WHAT = "server half"


@dataclass
class Recomputed:
    """What was recomputed."""

    findings: list[Finding] = field(default_factory=list)
    epochs: tuple[int, ...] = ()
    of: int = 0
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def recompute(work: Workplace, model: ModelRecord, digests: Sequence[str], epochs: int | None) -> Recomputed:
    """Recompute the server half from the shards.

    Args:
        work: where they are.
        model: what the server says of its model.
        digests: of the states that training went through, where the server keeps a transcript.
        epochs: how many to recompute, drawn at random; all unless given.

    Raises:
        InputError: so many cannot be drawn, or there is no transcript to draw from.
    """
    server = work.server
    if not model.exact:
        return Recomputed([Finding(_WHAT, "mismatch", "the server started warm, from a model that knew the data")])
    try:
        here = server.fingerprint()
    except ConfigError as problem:
        return Recomputed([Finding(_WHAT, "not_comparable", str(problem).removesuffix("."))])
    if odd := differing(model.fingerprint, here):
        return Recomputed([Finding(_WHAT, "not_comparable", "; ".join(odd))], of=server.config.epochs, fingerprint=here)
    with reproducible(pick_device(server.config.device), int(model.fingerprint["threads"])):
        done = _whole(work, model) if epochs is None else _sampled(work, model, digests, epochs)
    done.of, done.fingerprint = server.config.epochs, here
    return done


def _whole(work: Workplace, model: ModelRecord) -> Recomputed:
    server = work.server
    every = tuple(range(1, server.config.epochs + 1))
    try:
        trained, labels = server.compute(server.tree.shards())
    except TrainingError as problem:
        return Recomputed([Finding(_WHAT, "mismatch", f"it cannot be recomputed: {problem}")], every)
    if labels != model.labels or state_digest(trained.state) != model.digest:
        return Recomputed([Finding(_WHAT, "mismatch", "recomputed from the shards, and it is another one")], every)
    rows = sum(record.rows for record in server.tree.shards())
    told = f"recomputed from {rows} rows of {len(server.tree.shards())} signed shards, all {len(every)} epochs"
    return Recomputed([Finding(_WHAT, "exact", f"{told}: equal, bit for bit")], every)


def _sampled(work: Workplace, model: ModelRecord, digests: Sequence[str], count: int) -> Recomputed:
    if not model.transcript or not digests:
        raise InputError("this server keeps no transcript, so no single epochs can be recomputed: leave --epochs out.")
    transcript = Transcript(tuple(digests))
    if transcript.root != model.transcript:
        return Recomputed([Finding("transcript", "mismatch", "it is not the one that the ledger commits to")])
    inputs = work.server.inputs(work.server.tree.shards())
    chosen = sample_epochs(transcript.epochs, count)

    def state(epoch: int) -> dict[str, Tensor]:
        path = work.link.download(f"/v1/audit/epochs/{epoch}", work.place / f"epoch-{epoch}.safetensors")
        try:
            return load_state(path)
        finally:
            path.unlink()

    checks = [check_first(inputs, transcript)]
    checks.append(check_end(inputs, transcript, state(transcript.epochs), model.digest))
    for epoch in chosen:
        checks.append(recompute_epoch(inputs, transcript, epoch, state(epoch - 1)))
    return Recomputed([_summary(checks, chosen, transcript)], chosen)


def _summary(checks: Sequence[EpochCheck], chosen: tuple[int, ...], transcript: Transcript) -> Finding:
    if wrong := [check for check in checks if not check.exact]:
        where = f"epoch {wrong[0].epoch}"
        return Finding(_WHAT, "mismatch", f"{where}: {wrong[0].reason}")
    chance = detection(transcript.epochs, len(chosen))
    told = f"{len(chosen)} of {transcript.epochs} epochs recomputed ({', '.join(map(str, chosen))}), equal bit for bit"
    return Finding(RECOMPUTED, "holds", f"{told}; a single forged epoch is found with probability {chance:.2f}")
