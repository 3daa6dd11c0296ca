"""The whole ledger as an auditor reads it: checked against the pinned head, and replayed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from splitwiper.checks import Check, CheckFailed, run_check
from splitwiper.errors import CorruptError, MismatchError
from splitwiper.formats import counted
from splitwiper.seeding import mac
from splitwiper.service.audit.source import ShardShape
from splitwiper.service.certificate.log import TreeHead, leaf_of
from splitwiper.service.certificate.signed import ShardStatement
from splitwiper.store import ModelRecord, merkle
from splitwiper.store.replay import Replay, ShardEntry
from splitwiper.wire.commitments import model_commitment, shard_commitment

_MADE = ("run", "seed", "config", "codec", "initial", "client-initial")
"""Fields of the first entry, about how the store was made, that an audit needs."""


def play(listed: Sequence[Any], head: TreeHead) -> Replay:
    """Replay the entries of a ledger; `MismatchError` if they are not those of a ledger with this head."""
    played, first = Replay(), listed[: head.size]
    try:
        # only entries whose leaves give the head's root are those that the server committed to
        leaves = [leaf_of(shown["entry"], bytes.fromhex(shown["blind"])) for shown in first]
        if len(leaves) != head.size or merkle.root(leaves).hex() != head.root:
            raise MismatchError("the entries that the server shows are not those of its ledger's head.")
        for number, shown in enumerate(first, start=1):
            if shown["entry"].get("seq") != number:
                raise MismatchError(f"entry {number} of the ledger has another number.")
            played.add(shown["entry"])
        for name in _MADE:
            if not isinstance(played.made.get(name), str):
                raise MismatchError(f"the ledger's first entry does not say the store's {name}.")
    except (KeyError, TypeError, ValueError, AttributeError, CorruptError) as problem:
        raise MismatchError(f"the server's ledger cannot be read ({problem}).") from problem
    return played


def check_shards(
    shards: Sequence[ShardShape], played: Replay, known: Mapping[str, str] | None = None
) -> Iterator[Check]:
    """Check every shard of a manifest against its site's signature and the ledger.

    ``known`` has each site's public key, in hex, if the auditor has them from the sites themselves.
    """
    clients = {shard.client for shard in shards}
    if differing := sorted(clients ^ played.shards.keys()):
        detail = f"the ledger and the manifest disagree on a shard of {', '.join(differing)}"
        yield Check("manifest", "mismatch", detail)
    else:
        yield Check("manifest", "holds", f"its {counted(len(clients), 'shard')} and the ledger's are the same")
    if played.removed:
        named = ", ".join(f"{client} ({by})" for client, by in sorted(played.removed.items()))
        detail = f"the server erased shards without their sites' doing, and nobody can check why: {named}"
        yield Check("removed shards", "unchecked", detail)
    if known is None:
        detail = "no keys of sites are given (sites = FOLDER), so a site that the server made up would not show"
        yield Check("sites", "unchecked", detail)
    for shard in shards:
        yield run_check(f"shard of {shard.client}", partial(_shard, shard, played, known))


def _shard(shard: ShardShape, played: Replay, known: Mapping[str, str] | None) -> str:
    """Check one shard; see `run_check`."""
    entry = played.shards.get(shard.client, ShardEntry("", ""))
    run = str(played.made.get("run"))
    if shard_commitment(bytes.fromhex(shard.salt), shard.digest) != entry.commitment:
        raise CheckFailed("it is not the one that the ledger recorded last")
    if entry.outdated:
        late = f"entry {entry.since} took it in, and entry {entry.outdated} shows that its site replaced it since"
        raise CheckFailed(f"{late}: rows that were to be forgotten may be in it")
    if not shard.signed:
        raise CheckFailed("its site has not signed it: the server takes shards that are not signed", "unverifiable")
    try:
        statement = ShardStatement.read(json.loads(shard.signed))
    except (ValueError, OSError, RecursionError) as problem:
        raise CheckFailed(problem) from problem
    if statement.key != entry.key:
        raise CheckFailed("it was not signed with the key that its site had registered then")
    # the site's signature must be about this very shard, and not about an earlier one of the same site
    labels = (statement.codebook, statement.outputs)
    signed = (statement.federation, statement.client, statement.digest, statement.commitment, *labels)
    if signed != (run, shard.client, shard.digest, entry.commitment, shard.codebook, shard.outputs):
        raise CheckFailed("what its site signed is about another shard")
    if known is not None and shard.client not in known:
        raise CheckFailed(f"the auditor has no public key of this site: add {shard.client}.pem", "unverifiable")
    if known is not None and known[shard.client] != entry.key:
        other = f"the key that signed it, {entry.key[:16]}, is not the one that the auditor has of this site"
        raise CheckFailed(other)
    whose = "its site's key" if known is not None else "the key that the ledger has of its site,"
    detail = f"{counted(shard.rows, 'row')}, signed with {whose} {entry.key[:16]}"
    if known is None and (number := played.dropped.get(shard.client)):
        detail += f"; the operator dropped the key before it (entry {number}): ask the site whether this is its own"
    return detail


def check_model(model: ModelRecord | None, played: Replay, signed: str | None) -> str:
    """Check the model that the server shows against the ledger's newest entry about a model; see `run_check`.

    ``signed`` is the newest model according to the ledger's signed head; None if that head was not seen.
    """
    entry = played.model
    if signed is not None and signed != (entry.get("model") or ""):
        raise CheckFailed("the signed head of the ledger names another model than the ledger does")
    if model is None:
        if played.shards or entry.get("model") is not None:
            raise CheckFailed("the ledger has a model, and the server shows none")
        return "nobody holds rows: there is no model"
    root = mac(model.salt, "transcript", model.transcript).hex() if model.transcript else None
    record = mac(model.salt, "record", model.described()).hex()
    committed = (entry.get("model"), entry.get("record"), entry.get("transcript"))
    if (model_commitment(model.salt, model.digest), record, root) != committed:
        raise CheckFailed("the model that the server shows is not the newest of its ledger")
    return f"it is the newest of the ledger, entry {entry['seq']}"
