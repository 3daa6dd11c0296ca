"""The certificate as an in-toto Statement: what the server did for one ticket, and what that proves or does not prove.

It names only the requester. Of the others it says that they did nothing; the number of clients that hold shards shows
in the size of the manifest's tree.

Reading one requires every field to be present, no others, and each of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, FailFast, Field, ValidationError, create_model

from splitwiper.errors import FormatError, InputError
from splitwiper.service.certificate import manifest
from splitwiper.service.certificate.canonical import loads_canonical
from splitwiper.service.certificate.log import Log, leaf_of
from splitwiper.service.certificate.signed import Hash, printable, refusal
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
        "ledger": log.proof(log.settled(ticket), size),
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
    listed: list[dict[str, Any]] = [{"name": f"ticket {predicate['ticket']}", "digest": {"sha256": leaf.hex()}}]
    if (model := predicate["after"]["model"]) is not None:
        listed.append({"name": "server model", "digest": {"hmacSha256": model}})
    return listed


def statement(predicate: Mapping[str, Any]) -> dict[str, Any]:
    """Return the certificate as a statement."""
    return {
        "_type": STATEMENT,
        "subject": subjects(predicate),
        "predicateType": PREDICATE,
        "predicate": dict(predicate),
    }


def _time(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("it has no time zone")
    return text


def _object(name: str, **fields: Any) -> Any:
    """Return the form of an object that has exactly these fields."""
    # a field that this version does not know may change what the others mean, so it is refused, not ignored
    required: Any = {field: (kind, ...) for field, kind in fields.items()}
    return create_model(name, __config__=ConfigDict(strict=True, extra="forbid"), **required)


_Line = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(printable)]
_Time = Annotated[str, AfterValidator(_time)]
_Number = Annotated[int, Field(ge=0, lt=2**63)]
# one hash for each level of a tree of up to 2**64 leaves
_Proof = Annotated[list[Hash], Field(max_length=64), FailFast()]
_Texts = dict[_Line, str]
_Commitments = _object("Commitments", shard=Hash | None, manifest=Hash | None, model=Hash | None)
_PARTS = (
    "server_config",
    "server_initial",
    "server_model",
    "client_config",
    "client_initial",
    "client_key",
    "codebook",
)
_Entry = _object("Entry", seq=_Number, kind=Literal["settled"], ticket=_Line, receipt=Hash)
_Leaf = _object("Leaf", index=_Number, blind=Hash, proof=_Proof)
_Predicate = _object(
    "Predicate",
    federation=_Line,
    ticket=_Line,
    client=_Line,
    level=Literal["class", "sample", "client"],
    commitment=Annotated[str, Field(pattern="^([0-9a-f]{64})?$")],
    request=_object("Request", payload=_Line, payloadType=_Line, signatures=list[Any]) | None,
    exact=bool,
    received=_Time,
    settled=_Time,
    deadline=_object("Deadline", due=_Time, met=bool) | None,
    before=_Commitments,
    after=_Commitments,
    context=_object("Context", **dict.fromkeys(_PARTS, _Line | None)),
    fingerprint=_object("Fingerprint", client=_Texts, server=_Texts),
    others=_object("Others", contacted=_Number, bytes=_Number, seconds=Annotated[float, Field(ge=0)]),
    ledger=_object("Ledger", size=_Number, root=Hash, entry=_Entry, blind=Hash, proof=_Proof),
    manifest=_object("Manifest", size=_Number, root=Hash, leaf=_Leaf | None) | None,
    says=_object("Says", proves=list[Any], does_not_prove=list[Any]),
)
_Statement = _object(
    "Statement",
    kind=Annotated[Literal[STATEMENT], Field(alias="_type")],
    subject=list[Any],
    predicateType=Literal[PREDICATE],
    predicate=_Predicate,
)


def parse(payload: bytes) -> dict[str, Any]:
    """Return the certificate in a payload.

    Raises:
        FormatError: it is not canonical JSON, not a certificate of this version, or contradicts itself.
    """
    statement: dict[str, Any] = loads_canonical(payload, "certificate")
    try:
        _Statement.model_validate(statement)  # not the JSON: each error would copy what it is about
    except ValidationError as problem:
        raise FormatError(f"this is not a certificate of a version known here: {refusal(problem)}.") from problem
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
