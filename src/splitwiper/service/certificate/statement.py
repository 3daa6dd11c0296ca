"""The certificate as an in-toto Statement: what the server did for one ticket, and what that proves or does not prove.

It names only the requester. Of the others it says that they did nothing; the number of clients that hold shards shows
in the size of the manifest's tree.

Reading one requires every field to be present, no others, and each of its kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from splitwiper.errors import FormatError, InputError
from splitwiper.service.certificate import manifest
from splitwiper.service.certificate.canonical import loads_canonical
from splitwiper.service.certificate.log import Log, leaf_of
from splitwiper.store import ServerStore

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:splitwiper:certificate-of-unlearning:v2"
"""The wording of `says` is part of this version: other wording needs another version."""
COMMON = ("ticket", "client", "level", "commitment", "exact", "settled", "before", "after", "context", "fingerprint")
"""Fields that receipts and certificates share."""

_SIGNED = (
    "The holder of the signing key states that this ticket was settled as described. The entry that says so is in its "
    "ledger, under the tree head given here, whose size and root can be compared with those that others hold."
)
_EXACT = (
    "It states further that, computed again from the surviving data, in this context and with numerics of this "
    "fingerprint, the client's half and shard and the server's model have the bits committed to under 'after': those "
    "of a run that never had the data. A signature alone cannot show that. Sites recompute their halves and shards, "
    "auditors the server's model; what they found is in the attestations beside the statement."
)
_WARM = (
    "The server went on from a model that knew the data. This is not the model that never saw them, and recomputing "
    "from the surviving data does not give its bits."
)
_NOT = (
    "It does not cover copies, exports and backups outside the store, nor models that were handed out.",
    "It does not take back predictions that were made before.",
    "It cannot show that a dishonest server kept no copy.",
    "Commitments are HMACs under salts that are erased with what they commit to. Once the shard or the model is "
    "replaced, this is a statement about the past: its signature and its place in the ledger can still be checked, "
    "and nothing in it can be recomputed.",
)


def says(exact: bool) -> dict[str, list[str]]:
    """Return what a certificate proves and does not prove, in plain words."""
    return {"proves": [_SIGNED, _EXACT] if exact else [_SIGNED], "does_not_prove": [*([] if exact else [_WARM]), *_NOT]}


def describe(
    server_store: ServerStore,
    log: Log,
    ticket: str,
    *,
    size: int | None = None,
    due: str | datetime | None = None,
    request: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the contents of a settled ticket's certificate, as the predicate of a statement; see `certify`.

    ``size`` is the number of ledger entries that the tree head covers, all by default.
    """
    # no time of issue: the same state and key give the same bytes
    receipt = server_store.receipt(ticket)
    values, standing = receipt.to_dict(), manifest.is_standing(server_store, receipt)
    return {name: values[name] for name in (*COMMON, "others")} | {
        "federation": server_store.federation,
        "request": dict(request) if request else None,
        "received": server_store.ticket(ticket).received,
        "deadline": deadline(due, receipt.settled),
        "ledger": log.proof(log.newest("settled", ticket=ticket), size),
        # salts are erased with what they commit to, so the manifest of an earlier state cannot be shown
        "manifest": manifest.describe(server_store, receipt.client) if standing else None,
        "says": says(receipt.exact),
    }


def deadline(due: str | datetime | None, settled: str) -> dict[str, Any] | None:
    """Return a deadline, and whether it was met; `InputError` if it is not a time with a time zone."""
    if due is None:
        return None
    try:
        moment = due if isinstance(due, datetime) else datetime.fromisoformat(due)
        return {"due": moment.isoformat(), "met": datetime.fromisoformat(settled) <= moment}
    except (TypeError, ValueError) as problem:
        raise InputError(
            f"the deadline {due!r} is not a time with a zone: write it as 2030-01-31T12:00:00+00:00."
        ) from problem


def subjects(predicate: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the statement's subjects: the ledger entry, by its leaf hash, and the model, by its commitment."""
    shown = predicate["ledger"]
    leaf = leaf_of(shown["entry"], bytes.fromhex(shown["blind"]))
    out: list[dict[str, Any]] = [{"name": f"ticket {predicate['ticket']}", "digest": {"sha256": leaf.hex()}}]
    if (model := predicate["after"]["model"]) is not None:
        out.append({"name": "server model", "digest": {"hmacSha256": model}})
    return out


def statement(predicate: Mapping[str, Any]) -> dict[str, Any]:
    """Return the certificate as a statement."""
    return {
        "_type": STATEMENT,
        "subject": subjects(predicate),
        "predicateType": PREDICATE,
        "predicate": dict(predicate),
    }


_HASH = re.compile(r"[0-9a-f]{64}")
_LONGEST = 64
"""The largest number of hashes in a proof: one for each level of a tree of up to 2**64 leaves."""
Test = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 4096 and value.isprintable()  # shown on terminals


def _hash(value: Any) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _amount(value: Any) -> bool:
    return type(value) in (int, float) and value >= 0


def _time(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _proof(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= _LONGEST and all(map(_hash, value))


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_text, value)) and all(isinstance(text, str) for text in value.values())


def _is(kind: type) -> Test:
    return lambda value: isinstance(value, kind)


# a form is a test, a mapping of all fields to their forms, or a one-item tuple of a form if it may also be null
_COMMITMENTS = dict.fromkeys(("shard", "manifest", "model"), (_hash,))
_SERVERS = ("server_config", "server_initial", "server_model")
_PARTS = (*_SERVERS, "client_config", "client_initial", "client_key", "codebook")
_PREDICATE: dict[str, Any] = {
    "federation": _text,
    "ticket": _text,
    "client": _text,
    "level": lambda value: value in ("class", "sample", "client"),
    "commitment": lambda value: value == "" or _hash(value),
    "request": ({"payload": _text, "payloadType": _text, "signatures": _is(list)},),
    "exact": _is(bool),
    "received": _time,
    "settled": _time,
    "deadline": ({"due": _time, "met": _is(bool)},),
    "before": _COMMITMENTS,
    "after": _COMMITMENTS,
    "context": dict.fromkeys(_PARTS, (_text,)),
    "fingerprint": {"client": _texts, "server": _texts},
    "others": {"contacted": _count, "bytes": _count, "seconds": _amount},
    "ledger": {
        "size": _count,
        "root": _hash,
        "entry": {"seq": _count, "kind": lambda value: value == "settled", "ticket": _text, "receipt": _hash},
        "blind": _hash,
        "proof": _proof,
    },
    "manifest": ({"size": _count, "root": _hash, "leaf": ({"index": _count, "blind": _hash, "proof": _proof},)},),
    "says": {"proves": _is(list), "does_not_prove": _is(list)},
}
_STATEMENT: dict[str, Any] = {
    "_type": lambda value: value == STATEMENT,
    "subject": _is(list),
    "predicateType": lambda value: value == PREDICATE,
    "predicate": _PREDICATE,
}


def parse(payload: bytes) -> dict[str, Any]:
    """Return the certificate in a payload.

    Raises:
        FormatError: it is not canonical JSON, not a certificate of this version, or contradicts itself.
    """
    statement: dict[str, Any] = loads_canonical(payload, "certificate")
    _fit(statement, _STATEMENT, "the statement")
    predicate: dict[str, Any] = statement["predicate"]
    # what follows from other fields is computed again: a signer cannot make a certificate contradict itself
    if statement["subject"] != subjects(predicate):
        raise FormatError("the certificate's subject is not what its predicate is about.")
    if predicate["says"] != says(predicate["exact"]):
        raise FormatError("what the certificate proves and does not prove is not stated in the words of its version.")
    try:
        expected = predicate["deadline"] and deadline(predicate["deadline"]["due"], predicate["settled"])
    except InputError as problem:
        raise FormatError(str(problem)) from problem
    if expected != predicate["deadline"]:
        raise FormatError("whether the deadline was met does not follow from the times in the certificate.")
    return predicate


def _fit(value: Any, form: Any, where: str) -> None:
    """Match a value against a form, or raise `FormatError`."""
    if isinstance(form, tuple):
        if value is not None:
            _fit(value, form[0], where)
    elif isinstance(form, Mapping):
        if not isinstance(value, dict):
            raise FormatError(f"this is not a certificate: {where} is not an object.")
        # a field that this version does not know may change what the others mean, so it is refused, not ignored
        if odd := sorted(value.keys() ^ form.keys()):
            missing = "is missing from" if odd[0] in form else "is unknown in"
            raise FormatError(f"this is not a certificate of a version known here: {odd[0][:60]!r} {missing} {where}.")
        for key, inner in form.items():
            _fit(value[key], inner, key)
    elif not form(value):
        raise FormatError(f"this is not a certificate of a version known here: {where} is {str(value)[:60]!r}.")
