"""A requester's checks of its own certificate, against what the site itself signed, sent and sees.

A third party can check a certificate against itself and the ledger. The requester knows more: which request it made,
which shard it sent, which model answers it. Each check is a separate check, including those that cannot be made.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from splitwiper.checks import Check
from splitwiper.client import Client
from splitwiper.errors import MismatchError, NotFoundError, SplitWiperError
from splitwiper.service.certificate import Checked, Opening
from splitwiper.service.certificate.canonical import dumps
from splitwiper.service.site.served import ModelWatch, is_opened
from splitwiper.store import ClientStore
from splitwiper.wire import ModelCopy, Scores

_ROWS = 8
"""The number of the site's own rows that are predicted to find out which model answers."""


@dataclass(frozen=True)
class Certified:
    """A certificate, and the result of checking it."""

    envelope: dict[str, Any]
    checked: Checked

    def __bool__(self) -> bool:
        """Return whether the certificate holds."""
        return self.checked.holds


def check_own(contents: Mapping[str, Any], store: ClientStore, ticket: str) -> Iterator[Check]:
    """Compare a certificate with the request that the site made, and with the shards that it sent."""
    requests = {row["ticket"]: row for row in store.requests("open", "sent", "done")}
    if ticket not in requests:
        yield Check("asked", "mismatch", f"this site made no request with ticket {ticket}")
        return
    row = requests[ticket]
    expected = {
        "federation": store.database.meta("federation"),
        "ticket": ticket,
        "client": store.root.name,
        "level": row["level"],
        "commitment": row["commitment"],
    }
    others = []
    for name, value in expected.items():
        if contents[name] != value:
            others.append(f"{name} {str(contents[name])[:40]!r}")
    if others:
        detail = f"this is the certificate of something else than was asked for: {', '.join(others)}"
        yield Check("asked", "mismatch", detail)
    else:
        yield Check("asked", "holds", f"it is about ticket {ticket[:8]}, and commits to the rows suppressed here")
    yield _own_request(contents, row["signed"])
    yield from _own_shards(contents, store, ticket)


def _own_request(contents: Mapping[str, Any], signed: str) -> Check:
    outcome = partial(Check, "own request")
    if not signed or contents["request"] is None:
        return outcome("mismatch", "the certificate does not show the request that this site signed")
    if dumps(json.loads(signed)) != dumps(contents["request"]):
        return outcome("mismatch", "the request in the certificate is not the one that this site signed and kept")
    return outcome("holds", "the request in it is byte for byte the one that this site signed")


def _own_shards(contents: Mapping[str, Any], store: ClientStore, ticket: str) -> Iterator[Check]:
    before, after = contents["before"]["shard"], contents["after"]["shard"]  # commitments; None where there was none
    if (before or "") not in store.shards_before(ticket):
        yield Check("shard before", "mismatch", "it is not the shard that this site had sent when it asked")
    elif before:
        yield Check("shard before", "holds", "the shard that this site had sent when it asked")
    else:
        yield Check("shard before", "holds", "none, as this site had sent none")
    if (after or "") not in store.shards_after(ticket):
        why = "a shard that this site did not send in answer to the request" if after else "none, though this site sent"
        yield Check("shard after", "mismatch", why)
    elif after is None:
        yield Check("shard after", "holds", "none: this site has withdrawn it, or the server's ledger says why not")
    else:
        newest = " and is its newest" if after == store.shard_commitment() else ""
        yield Check("shard after", "holds", f"the shard that this site computed without the rows{newest}")


def check_held(contents: Mapping[str, Any], store: ClientStore, ticket: str, opening: Opening) -> Check:
    """Check that the server still holds the shard in a certificate, if this site has sent no other one since.

    A server could accept the new shard, certify, and later put the old one back into its ledger: the old one, too, has
    the site's own signature. The opening has the shard's salt only while the server holds that shard.
    """
    outcome, after = partial(Check, "shard held"), contents["after"]["shard"]
    if after is None or store.is_behind() or store.shards_after(ticket) != {after}:
        return outcome("unchecked", "this site has sent or withdrawn another shard since, or is about to")
    if not opening.salt:
        detail = "the server no longer holds the shard that this site sent last, and this site sent no other one since"
        return outcome("mismatch", detail)
    return outcome("holds", "the shard that the server holds now is the one in the certificate")


def check_served(contents: Mapping[str, Any], opening: Opening, fetch: Callable[[], ModelCopy]) -> Check:
    """Open the commitment to the model with the model that the server hands out.

    ``fetch`` fetches the server half, and checks that it is this model or a later one in the ledger.
    """
    outcome, committed = partial(Check, "model"), contents["after"]["model"]
    if committed is None:
        return outcome("holds", "there was no model when it was settled")
    try:
        copy = fetch()
    except MismatchError as problem:
        return outcome("mismatch", str(problem).removesuffix("."))
    except SplitWiperError as problem:
        return outcome("unchecked", f"the model cannot be had: {str(problem).removesuffix('.')}")
    if copy.commitment != committed:
        return outcome("unchecked", "another model has followed it in the ledger, and is handed out now")
    for salt in {copy.salt, opening.model_salt or copy.salt}:  # the copy's, and the one that the opening names
        if not is_opened(dataclasses.replace(copy, salt=salt), committed):
            return outcome("mismatch", "the model that the server hands out is not the one in the certificate")
    return outcome("holds", "the model that the server hands out is the one in the certificate")


def check_predictions(
    contents: Mapping[str, Any], client: Client, watch: ModelWatch, ask: Callable[..., Scores]
) -> Check:
    """Predict some of the site's own rows through the server and with the downloaded half, and compare.

    ``ask`` asks the server, without checking.
    """
    outcome = partial(Check, "predictions")
    if contents["after"]["model"] is None:
        return outcome("holds", "there is no model that could answer")
    if client.config.noise.is_on:
        return outcome("unchecked", "rows of this site are sent with noise, and asking would spend of its budget")
    before, models = watch.checked, set[str]()

    def compared(boundary: Mapping[str, Any]) -> Scores:
        scores = watch.compared(boundary, ask)
        models.add(scores.model)
        return scores

    try:
        rows = client.probe(compared, most=_ROWS)
    except MismatchError as problem:
        return outcome("mismatch", str(problem).removesuffix("."))
    except NotFoundError as problem:
        return outcome("unchecked", str(problem).removesuffix("."))
    except SplitWiperError as problem:
        return outcome("unchecked", f"the server did not answer: {str(problem).removesuffix('.')}")
    if watch.checked == before:
        return outcome("unchecked", f"answers could not be compared: {watch.unchecked}")
    if models != {contents["after"]["model"]}:
        return outcome("unchecked", "another model answers by now, which followed it in the ledger")
    return outcome("holds", f"{rows} of this site's own rows get the answers of the model in the certificate")
