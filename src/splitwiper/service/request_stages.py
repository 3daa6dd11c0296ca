"""The stages that a request passes, with times: received, accepted, erased, retrained, certified.

If the server held no shard of the client, there is nothing to erase or retrain: the request is settled at once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from splitwiper.service.certificate.issuing import kept_at
from splitwiper.service.requests import RequestRecord
from splitwiper.store import ServerStore
from splitwiper.wire import Ticket

Stage = Literal["received", "accepted", "erased", "retrained", "settled", "certified"]


def begun(ticket: Ticket, case: RequestRecord | None) -> str:
    """Return when the deadline started to run: when the request was received, however long accepting it took."""
    return case.received if case is not None else ticket.received


def stages(store: ServerStore, ticket: Ticket | None, case: RequestRecord | None) -> dict[Stage, str]:
    """Return the stages that a request has reached, in order, with their times.

    Args:
        store: the server's store.
        ticket: the request's ticket; None before it is accepted.
        case: the request as it was received; None if it did not come over the network.
    """
    found: dict[Stage, str] = {}
    if case is not None or ticket is not None:
        found["received"] = begun(ticket, case) if ticket else case.received if case else ""
    if ticket is None:
        return found
    found["accepted"] = ticket.received
    if ticket.erased:
        found["erased"] = ticket.erased
    if ticket.settled:
        found["retrained" if ticket.erased else "settled"] = ticket.settled
        path = kept_at(store, ticket.id)
        if path.exists():
            found["certified"] = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    return found
