"""Validation of a certificate's form: every field present, no others, each of its kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from splitwiper.errors import FormatError, InputError
from splitwiper.service.certificate.canonical import loads_canonical
from splitwiper.service.certificate.statement import PREDICATE, STATEMENT, deadline, says, subjects

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


def _or_none(test: Test) -> Test:
    return lambda value: value is None or test(value)


def _proof(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= _LONGEST and all(map(_hash, value))


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(_text(k) and isinstance(v, str) for k, v in value.items())


_COMMITMENTS = dict.fromkeys(("shard", "manifest", "model"), _or_none(_hash))
_SERVERS = ("server_config", "server_initial", "server_model")
_PARTS = (*_SERVERS, "client_config", "client_initial", "client_key", "codebook")
_PREDICATE: dict[str, Any] = {
    "federation": _text,
    "ticket": _text,
    "client": _text,
    "level": lambda value: value in ("class", "sample", "client"),
    "commitment": lambda value: value == "" or _hash(value),
    "request": [{"payload": _text, "payloadType": _text, "signatures": lambda value: isinstance(value, list)}],
    "exact": lambda value: isinstance(value, bool),
    "received": _time,
    "settled": _time,
    "deadline": [{"due": _time, "met": lambda value: isinstance(value, bool)}],
    "before": _COMMITMENTS,
    "after": _COMMITMENTS,
    "context": dict.fromkeys(_PARTS, _or_none(_text)),
    "fingerprint": {"client": _texts, "server": _texts},
    "others": {"contacted": _count, "bytes": _count, "seconds": _amount},
    "ledger": {
        "size": _count,
        "root": _hash,
        "entry": {"seq": _count, "kind": lambda value: value == "settled", "ticket": _text, "receipt": _hash},
        "blind": _hash,
        "proof": _proof,
    },
    "manifest": [{"size": _count, "root": _hash, "leaf": [{"index": _count, "blind": _hash, "proof": _proof}]}],
    "says": {"proves": lambda value: isinstance(value, list), "does_not_prove": lambda value: isinstance(value, list)},
}
_STATEMENT: dict[str, Any] = {
    "_type": lambda value: value == STATEMENT,
    "subject": lambda value: isinstance(value, list),
    "predicateType": lambda value: value == PREDICATE,
    "predicate": _PREDICATE,
}


def parse(payload: bytes) -> dict[str, Any]:
    """Return the certificate in a payload.

    Raises:
        FormatError: it is not canonical JSON, not a certificate of this version, or contradicts itself.
    """
    found: dict[str, Any] = loads_canonical(payload, "certificate")
    _fit(found, _STATEMENT, "the statement")
    predicate: dict[str, Any] = found["predicate"]
    # what follows from other fields is computed again: a signer cannot make a certificate contradict itself
    if found["subject"] != subjects(predicate):
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
    """Match a value against a form: a mapping of all its fields, a test, or a one-item list if it may be null."""
    if isinstance(form, list):
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
