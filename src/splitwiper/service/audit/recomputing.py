"""Recomputing the server half, completely or for a random choice of its epochs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from splitwiper.certainty import reproduced
from splitwiper.checks import RECOMPUTED, Check
from splitwiper.errors import ConfigError, DataError, InputError, TrainingError
from splitwiper.federation.verify import differing
from splitwiper.formats import counted
from splitwiper.numerics import pick_device, reproducible
from splitwiper.seeding import state_digest
from splitwiper.server.training import first_state
from splitwiper.server.transcript import Transcript, check_end, check_first, detection, recompute_epoch, sample_epochs
from splitwiper.service.audit.workplace import HEADER, Workplace
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

    checks: list[Check] = field(default_factory=list)
    epochs: tuple[int, ...] = ()
    of: int = 0
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def recompute(work: Workplace, model: ModelRecord, epochs: int | None) -> Recomputed:
    """Recompute the server half from the shards in a workplace: so many epochs, drawn at random, or all if None.

    Raises:
        InputError: there are fewer epochs than that.
        BusyError: the model was replaced during the audit.
        NotFoundError: the server does not hand out a state that it lists.
    """
    server = work.server
    if not model.exact:
        return Recomputed([Check(_WHAT, "mismatch", "the server started warm, from a model that knew the data")])
    try:
        here = server.fingerprint()
    except ConfigError as problem:
        return Recomputed([Check(_WHAT, "not_comparable", str(problem).removesuffix("."))])
    if different := differing(model.fingerprint, here):
        check = Check(_WHAT, "not_comparable", "; ".join(different))
        return Recomputed([check], of=server.config.epochs, fingerprint=here)
    with reproducible(pick_device(server.config.device), int(model.fingerprint["threads"])):
        done = _whole(work, model) if epochs is None else _sampled(work, model, epochs)
    done.of, done.fingerprint = server.config.epochs, here
    return done


def _whole(work: Workplace, model: ModelRecord) -> Recomputed:
    server, shards, listed = work.server, work.server.store.shards(), (model.labels, model.digest)
    every = tuple(range(1, server.config.epochs + 1))

    def computed() -> tuple[tuple[Label, ...], str]:
        trained, labels = server.compute(shards)
        return labels, state_digest(trained.state)

    try:
        # computed again if it differs: a disturbed computation here must not accuse the server
        same = reproduced(computed, listed, _WHAT) == listed
    except (DataError, TrainingError) as problem:
        return Recomputed([Check(_WHAT, "mismatch", f"it cannot be recomputed: {problem}")], every)
    if not same:
        return Recomputed([Check(_WHAT, "mismatch", "recomputed from the shards, and it is another one")], every)
    rows, of = sum(shard.rows for shard in shards), counted(len(shards), "signed shard")
    detail = f"recomputed from {counted(rows, 'row')} of {of}, all {counted(len(every), 'epoch')}"
    return Recomputed([Check(_WHAT, "exact", f"{detail}: equal, bit for bit")], every)


def _sampled(work: Workplace, model: ModelRecord, count: int) -> Recomputed:
    transcript, server, wrong = Transcript(tuple(work.manifest.epochs)), work.server, ""
    if not model.transcript:
        wrong = "the settings promise one, and the model has none"
    elif not transcript.digests or transcript.root != model.transcript:
        wrong = "it is not the one that the ledger commits to"
    elif transcript.epochs != server.config.epochs:
        wrong = f"it has {transcript.epochs} epochs, and the settings say {server.config.epochs}"
    if wrong:
        return Recomputed([Check("transcript", "mismatch", wrong)])
    inputs = server.inputs(server.store.shards())
    chosen = draw_epochs(work.folder.parent, model_commitment(model.salt, model.digest), transcript.epochs, count)
    # a server must not fill the auditor's disk with a state that no training of this model has
    most = _STATES * sum(tensor.nbytes for tensor in first_state(inputs).values()) + HEADER

    def state(epoch: int) -> Mapping[str, Tensor]:
        return work.state(f"/v1/audit/epochs/{epoch}", most, transcript.digests[epoch])

    # the chain is anchored at both ends: it starts from the first weights, and ends in the model that answers
    checks = [check_first(inputs, transcript)]
    checks.append(check_end(inputs, transcript, state(transcript.epochs), model.digest))
    for epoch in chosen:
        checks.append(recompute_epoch(inputs, transcript, epoch, state(epoch - 1)))
    for check in checks:
        if not check.exact:
            return Recomputed([Check(_WHAT, "mismatch", f"{check.what}: {check.detail}")], chosen)
    chance = detection(transcript.epochs, len(chosen))
    detail = (
        f"{len(chosen)} of {transcript.epochs} epochs recomputed ({', '.join(map(str, chosen))}), equal bit for bit; a "
        f"single forged epoch is found with probability {chance:.2f}"
    )
    return Recomputed([Check(RECOMPUTED, "holds", detail)], chosen)


def draw_epochs(folder: Path, model: str, of: int, count: int) -> tuple[int, ...]:
    """Choose ``count`` of ``of`` epochs at random, and record them before the server is asked: until an audit ends.

    The server learns which epochs were drawn when the auditor asks for their states. If breaking off led to a new draw,
    a cheating server could simply break off whenever it would be caught. So the epochs of an interrupted audit of this
    model are always included, even if these are more.
    """
    if not 1 <= count <= of:
        raise InputError(f"{count} different epochs cannot be drawn from {of}: give a number up to {of}.")
    # the file is the auditor's own, but may have been damaged: what is not an epoch is ignored
    every = set(range(1, of + 1))
    pending = every.intersection(_pending(folder, model))
    others = sorted(every - pending)
    fresh = sample_epochs(len(others), count - len(pending)) if count > len(pending) else ()
    chosen = tuple(sorted(pending | {others[number - 1] for number in fresh}))
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
