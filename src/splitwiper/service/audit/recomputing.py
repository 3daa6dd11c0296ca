"""Recomputing the server half, completely or for a random choice of its epochs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from splitwiper.certainty import reproduced
from splitwiper.errors import ConfigError, DataError, InputError, TrainingError
from splitwiper.federation.verify import differing
from splitwiper.formats import counted
from splitwiper.numerics import pick_device, reproducible
from splitwiper.seeding import state_digest
from splitwiper.server import Server
from splitwiper.server.training import first_state
from splitwiper.server.transcript import (
    EpochCheck,
    Transcript,
    check_end,
    check_first,
    detection,
    recompute_epoch,
    sample_epochs,
)
from splitwiper.service.audit.workplace import HEADER, Workplace
from splitwiper.service.certificate.findings import RECOMPUTED, Finding
from splitwiper.store import ModelRecord, files
from splitwiper.wire import Label
from splitwiper.wire.commitments import model_commitment

_WHAT = "server half"
_DRAWN = "drawn.json"
"""File in the auditor's own folder: the epochs drawn for an audit that has not ended."""
_STATES = 4
"""Largest number of tensors in a state per weight: optimisers keep up to two moments, and a counter."""


@dataclass
class Recomputed:
    """The result of recomputing."""

    findings: list[Finding] = field(default_factory=list)
    epochs: tuple[int, ...] = ()
    of: int = 0
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def recompute(work: Workplace, model: ModelRecord, epochs: int | None) -> Recomputed:
    """Recompute the server half from the shards.

    Args:
        work: the workplace that holds them.
        model: the server's record of its model.
        epochs: how many to recompute, drawn at random; all if None.

    Raises:
        InputError: there are fewer epochs than that.
        BusyError: the model was replaced during the audit.
        NotFoundError: the server does not hand out a state that it lists.
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
        done = _whole(work, model) if epochs is None else _sampled(work, model, epochs)
    done.of, done.fingerprint = server.config.epochs, here
    return done


def _whole(work: Workplace, model: ModelRecord) -> Recomputed:
    server = work.server
    every = tuple(range(1, server.config.epochs + 1))
    try:
        labels, digest = reproduced(lambda: _computed(server), (model.labels, model.digest), _WHAT)
    except (DataError, TrainingError) as problem:
        return Recomputed([Finding(_WHAT, "mismatch", f"it cannot be recomputed: {problem}")], every)
    if (labels, digest) != (model.labels, model.digest):
        return Recomputed([Finding(_WHAT, "mismatch", "recomputed from the shards, and it is another one")], every)
    rows = sum(record.rows for record in server.store.shards())
    of = counted(len(server.store.shards()), "signed shard")
    detail = f"recomputed from {counted(rows, 'row')} of {of}, all {counted(len(every), 'epoch')}"
    return Recomputed([Finding(_WHAT, "exact", f"{detail}: equal, bit for bit")], every)


def _computed(server: Server) -> tuple[tuple[Label, ...], str]:
    """Return labels and digest of the server half that training on the shards gives."""
    trained, labels = server.compute(server.store.shards())
    return labels, state_digest(trained.state)


def _sampled(work: Workplace, model: ModelRecord, count: int) -> Recomputed:
    if not model.transcript:
        return Recomputed([Finding("transcript", "mismatch", "the settings promise one, and the model has none")])
    transcript, server = Transcript(tuple(work.manifest.epochs)), work.server
    if not transcript.digests or transcript.root != model.transcript:
        return Recomputed([Finding("transcript", "mismatch", "it is not the one that the ledger commits to")])
    if transcript.epochs != server.config.epochs:
        detail = f"it has {transcript.epochs} epochs, and the settings say {server.config.epochs}"
        return Recomputed([Finding("transcript", "mismatch", detail)])
    inputs = server.inputs(server.store.shards())
    chosen = draw_epochs(work.place.parent, model_commitment(model.salt, model.digest), transcript.epochs, count)
    most = _STATES * sum(tensor.nbytes for tensor in first_state(inputs).values()) + HEADER

    def state(epoch: int) -> Mapping[str, Tensor]:
        return work.state(f"/v1/audit/epochs/{epoch}", most, transcript.digests[epoch])

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
    detail = (
        f"{len(chosen)} of {transcript.epochs} epochs recomputed ({', '.join(map(str, chosen))}), equal bit for bit"
    )
    return Finding(RECOMPUTED, "holds", f"{detail}; a single forged epoch is found with probability {chance:.2f}")


def draw_epochs(folder: Path, model: str, of: int, count: int) -> tuple[int, ...]:
    """Choose epochs at random, and record them before the server is asked for anything: they stand until an audit ends.

    The server learns which epochs were drawn when the auditor asks for their states. If breaking off led to a new draw,
    a cheating server could simply break off whenever it would be caught.

    Args:
        folder: the auditor's own folder.
        model: the commitment to the model that is audited.
        of: the number of epochs of the training.
        count: how many to choose. The epochs of an interrupted audit of this model are always included, so there may
            be more.

    Raises:
        InputError: ``count`` is not between 1 and ``of``.
    """
    if not 1 <= count <= of:
        raise InputError(f"{count} different epochs cannot be drawn from {of}: give a number up to {of}.")
    pending = [epoch for epoch in _pending(folder, model) if 1 <= epoch <= of]
    others = [epoch for epoch in range(1, of + 1) if epoch not in pending]
    fresh = sample_epochs(len(others), count - len(pending)) if count > len(pending) else ()
    chosen = tuple(sorted([*pending, *(others[place - 1] for place in fresh)]))
    files.write_bytes(folder / _DRAWN, json.dumps({"model": model, "epochs": chosen}).encode())
    return chosen


def forget_draw(folder: Path) -> None:
    """Let the next audit draw new epochs, because this one has ended."""
    (folder / _DRAWN).unlink(missing_ok=True)


def _pending(folder: Path, model: str) -> list[int]:
    try:
        kept = json.loads((folder / _DRAWN).read_bytes())
        return [int(epoch) for epoch in kept["epochs"]] if kept["model"] == model else []
    except (OSError, ValueError, KeyError, TypeError):  # missing or unreadable
        return []
