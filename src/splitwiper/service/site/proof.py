"""A requester's checks of its own certificate, against what the site itself signed, sent and sees.

A third party can check a certificate against itself and the ledger. The requester knows more: which request it made,
which shard it sent, which model answers it. Each check is a separate finding, including those that cannot be made.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from splitwiper.client import Client
from splitwiper.errors import MismatchError, NotFoundError, SplitWiperError
from splitwiper.service.certificate import Finding, Opening
from splitwiper.service.certificate.canonical import dumps
from splitwiper.service.site.served import ModelWatch, is_opened
from splitwiper.store import ClientStore
from splitwiper.wire import ModelCopy, Scores

_ROWS = 8
"""The number of the site's own rows that are predicted to find out which model answers."""


def own_findings(said: Mapping[str, Any], store: ClientStore, ticket: str) -> Iterator[Finding]:
    """Compare a certificate with the request that the site made, and with the shards that it sent."""
    rows = [row for row in store.requests("open", "sent", "done") if row["ticket"] == ticket]
    if not rows:
        yield Finding("asked", "mismatch", f"this site made no request with ticket {ticket}")
        return
    (row,) = rows
    expected = {
        "federation": store.database.meta("federation"),
        "ticket": ticket,
        "client": store.root.name,
        "level": row["level"],
        "commitment": row["commitment"],
    }
    if odd := [name for name, value in expected.items() if said[name] != value]:
        told = ", ".join(f"{name} {str(said[name])[:40]!r}" for name in odd)
        yield Finding("asked", "mismatch", f"this is the certificate of something else than was asked for: {told}")
    else:
        yield Finding("asked", "holds", f"it is about ticket {ticket[:8]}, and commits to the rows suppressed here")
    yield _own_request(said, row["signed"])
    yield from _own_shards(said, store, ticket)


def _own_request(said: Mapping[str, Any], signed: str) -> Finding:
    what = "own request"
    if not signed or said["request"] is None:
        return Finding(what, "mismatch", "the certificate does not show the request that this site signed")
    if dumps(json.loads(signed)) != dumps(said["request"]):
        return Finding(what, "mismatch", "the request in the certificate is not the one that this site signed and kept")
    return Finding(what, "holds", "the request in it is byte for byte the one that this site signed")


def _own_shards(said: Mapping[str, Any], store: ClientStore, ticket: str) -> Iterator[Finding]:
    before, after = said["before"]["shard"], said["after"]["shard"]
    if (before or "") not in store.shards_before(ticket):
        yield Finding("shard before", "mismatch", "it is not the shard that this site had sent when it asked")
    else:
        told = "the shard that this site had sent when it asked" if before else "none, as this site had sent none"
        yield Finding("shard before", "holds", told)
    sent = store.shards_after(ticket)
    if (after or "") not in sent:
        why = "a shard that this site did not send in answer to the request" if after else "none, though this site sent"
        yield Finding("shard after", "mismatch", why)
    elif after is None:
        yield Finding("shard after", "holds", "none: this site has withdrawn it, or the server's ledger says why not")
    else:
        newest = " and is its newest" if after == store.shard_commitment() else ""
        yield Finding("shard after", "holds", f"the shard that this site computed without the rows{newest}")


def held_finding(said: Mapping[str, Any], store: ClientStore, ticket: str, opening: Opening) -> Finding:
    """Check that the server still holds the shard in a certificate, if this site has sent no other one since.

    A server could accept the new shard, certify, and later put the old one back into its ledger: the old one, too, has
    the site's own signature.

    The opening has the shard's salt only while the server holds that shard.
    """
    what, after = "shard held", said["after"]["shard"]
    if after is None or store.is_behind() or store.shards_after(ticket) != {after}:
        return Finding(what, "unchecked", "this site has sent or withdrawn another shard since, or is about to")
    if not opening.salt:
        told = "the server no longer holds the shard that this site sent last, and this site sent no other one since"
        return Finding(what, "mismatch", told)
    return Finding(what, "holds", "the shard that the server holds now is the one in the certificate")


def model_finding(said: Mapping[str, Any], opening: Opening, copy: Callable[[], ModelCopy]) -> Finding:
    """Open the commitment to the model with the model that the server hands out.

    ``copy`` fetches the server half, and checks that it is this model or a later one in the ledger.
    """
    what, committed = "model", said["after"]["model"]
    if committed is None:
        return Finding(what, "holds", "there was no model when it was settled")
    try:
        found = copy()
    except MismatchError as problem:
        return Finding(what, "mismatch", str(problem).removesuffix("."))
    except SplitWiperError as problem:
        return Finding(what, "unchecked", f"the model cannot be had: {str(problem).removesuffix('.')}")
    if found.commitment != committed:
        return Finding(what, "unchecked", "another model has followed it in the ledger, and is handed out now")
    salts = {found.salt, opening.model_salt or found.salt}
    if not all(is_opened(dataclasses.replace(found, salt=salt), committed) for salt in salts):
        return Finding(what, "mismatch", "the model that the server hands out is not the one in the certificate")
    return Finding(what, "holds", "the model that the server hands out is the one in the certificate")


def prediction_finding(
    said: Mapping[str, Any], client: Client, watch: ModelWatch, ask: Callable[..., Scores]
) -> Finding:
    """Predict some of the site's own rows through the server and with the downloaded half, and compare.

    ``ask`` asks the server, without checking.
    """
    what = "predictions"
    if said["after"]["model"] is None:
        return Finding(what, "holds", "there is no model that could answer")
    if client.config.noise.is_on:
        return Finding(what, "unchecked", "rows of this site are sent with noise, and asking would spend of its budget")
    before, models = watch.checked, set[str]()

    def compared(boundary: Mapping[str, Any]) -> Scores:
        scores = watch.compared(boundary, ask)
        models.add(scores.model)
        return scores

    try:
        rows = client.probe(compared, most=_ROWS)
    except MismatchError as problem:
        return Finding(what, "mismatch", str(problem).removesuffix("."))
    except NotFoundError as problem:
        return Finding(what, "unchecked", str(problem).removesuffix("."))
    except SplitWiperError as problem:
        return Finding(what, "unchecked", f"the server did not answer: {str(problem).removesuffix('.')}")
    if watch.checked == before:
        return Finding(what, "unchecked", f"answers could not be compared: {watch.unchecked}")
    if models != {said["after"]["model"]}:
        return Finding(what, "unchecked", "another model answers by now, which followed it in the ledger")
    return Finding(what, "holds", f"{rows} of this site's own rows get the answers of the model in the certificate")
