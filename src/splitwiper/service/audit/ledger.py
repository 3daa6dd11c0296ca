"""The whole ledger as an auditor reads it: under the head that was pinned, and played to what it leads to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from splitwiper.errors import CorruptError, MismatchError
from splitwiper.seeding import mac
from splitwiper.service.certificate.findings import Finding
from splitwiper.service.certificate.log import Head, leaf_of
from splitwiper.service.certificate.site import read_shard_statement
from splitwiper.store import merkle
from splitwiper.store.replay import Replay, ShardEntry
from splitwiper.wire.commitments import model_commitment, shard_commitment


def play(listed: Sequence[Mapping[str, Any]], head: Head) -> Replay:
    """Return what a ledger leads to, up to a head, after checking that these are its entries.

    Raises:
        MismatchError: they are not.
    """
    played = Replay()
    try:
        first = listed[: head.size]
        leaves = [leaf_of(one["entry"], bytes.fromhex(one["blind"])) for one in first]
        if len(leaves) != head.size or merkle.root(leaves).hex() != head.root:
            raise MismatchError("the entries that the server shows are not those of its ledger's head.")
        for number, one in enumerate(first, start=1):
            if one["entry"].get("seq") != number:
                raise MismatchError(f"entry {number} of the ledger has another number.")
            played.add(one["entry"])
    except (KeyError, TypeError, ValueError, AttributeError, CorruptError) as problem:
        raise MismatchError(f"the server's ledger cannot be read ({problem}).") from problem
    return played


def shard_findings(shards: Sequence[Mapping[str, Any]], played: Replay) -> Iterator[Finding]:
    """Check every shard of a manifest against its site's signature and the ledger."""
    held = {str(told["client"]) for told in shards}
    if odd := sorted(held ^ played.shards.keys()):
        yield Finding("manifest", "mismatch", f"the ledger and the manifest disagree on a shard of {', '.join(odd)}")
    else:
        yield Finding("manifest", "holds", f"it has the {len(held)} shards that the ledger leads to, and no others")
    for told in shards:
        entered = played.shards.get(str(told["client"]), ShardEntry("", ""))
        yield _shard(told, entered, run=str(played.made.get("run")))


def _shard(told: Mapping[str, Any], entry: ShardEntry, *, run: str) -> Finding:
    client, entered, key = str(told["client"]), entry.commitment, entry.key
    what = f"shard of {client}"
    if shard_commitment(bytes.fromhex(told["salt"]), told["digest"]) != entered:
        return Finding(what, "mismatch", "it is not the one that the ledger took in last")
    if entry.outdated:
        late = f"entry {entry.since} took it in, and entry {entry.outdated} shows that its site replaced it since"
        return Finding(what, "mismatch", f"{late}: rows that were to be forgotten may be in it")
    if not told["signed"]:
        return Finding(what, "unverifiable", "its site has not signed it: the server takes shards that are not signed")
    try:
        made = read_shard_statement(json.loads(told["signed"]))
    except (ValueError, OSError) as problem:
        return Finding(what, "mismatch", str(problem).removesuffix("."))
    if made.key != key:
        return Finding(what, "mismatch", "it was not signed with the key that its site had registered then")
    said = (made.federation, made.client, made.digest, made.commitment, made.codebook, made.outputs)
    if said != (run, client, told["digest"], entered, told["codebook"], told["outputs"]):
        return Finding(what, "mismatch", "what its site signed is about another shard")
    return Finding(what, "holds", f"{told['rows']} rows, signed by its site with key {key[:16]}")


def model_finding(model: Mapping[str, Any] | None, described: str, played: Replay) -> Finding:
    """Check what the server says of its model against the ledger's newest entry about one.

    Args:
        model: what the server says; None where it has no model.
        described: the same as the text that the ledger commits to.
        played: the ledger.
    """
    what, entry = "model", played.model
    if model is None:
        if played.shards or entry.get("model") is not None:
            return Finding(what, "mismatch", "the ledger has a model, and the server shows none")
        return Finding(what, "holds", "nobody holds rows: there is no model")
    salt = bytes.fromhex(model["salt"])
    root = mac(salt, "transcript", model["transcript"]).hex() if model["transcript"] else None
    record = mac(salt, "record", described).hex()
    told = (model_commitment(salt, model["digest"]), record, root)
    if told != tuple(entry.get(name) for name in ("model", "record", "transcript")):
        return Finding(what, "mismatch", "the model that the server shows is not the newest of its ledger")
    return Finding(what, "holds", f"it is the newest of the ledger, entry {entry['seq']}")
