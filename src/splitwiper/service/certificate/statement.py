"""The certificate as an in-toto Statement: what the server did for one ticket, and what that proves or does not prove.

It names only the requester. Of the others it says that they did nothing; the number of clients that hold shards shows
in the size of the manifest's tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from splitwiper.errors import InputError
from splitwiper.service.certificate import manifest
from splitwiper.service.certificate.log import Log, leaf_of
from splitwiper.store import ServerStore

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:splitwiper:certificate-of-unlearning:v2"
"""The wording of `says` is part of this version: other wording needs another version."""

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
    """Return the contents of a settled ticket's certificate, as the predicate of a statement.

    Args:
        server_store: the server's store.
        log: its ledger.
        ticket: the ticket's id.
        size: the number of ledger entries that the tree head covers; all by default.
        due: the deadline for settling the ticket.
        request: the request as the client signed it.

    Raises:
        NotFoundError: there is no such ticket, or it is not settled.
    """
    # no time of issue: the same state and key give the same bytes
    receipt, seq = server_store.receipt(ticket), log.settled(ticket)
    return {
        "federation": server_store.federation,
        "ticket": receipt.ticket,
        "client": receipt.client,
        "level": receipt.level,
        "commitment": receipt.commitment,
        "request": dict(request) if request else None,
        "exact": receipt.exact,
        "received": server_store.ticket(ticket).received,
        "settled": receipt.settled,
        "deadline": deadline(due, receipt.settled),
        "before": dict(receipt.before),
        "after": dict(receipt.after),
        "context": dict(receipt.context),
        "fingerprint": {side: dict(values) for side, values in receipt.fingerprint.items()},
        "others": dict(receipt.others),
        "ledger": log.proof(seq, size),
        "manifest": manifest.describe(server_store, receipt.client)
        if manifest.is_standing(server_store, receipt)
        else None,
        "says": says(receipt.exact),
    }


def deadline(due: str | datetime | None, settled: str) -> dict[str, Any] | None:
    """Return a deadline, and whether it was met.

    Raises:
        InputError: it is not a time with a time zone.
    """
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
