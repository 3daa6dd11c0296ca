"""Stages of a request, for whoever must answer for it: received, accepted, erased, retrained, certified, and when.

Where the server held no shard of the client, nothing is erased and nothing retrained: the request is settled at once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from splitwiper.service.cases import Case
from splitwiper.service.certificate.issuing import kept_at
from splitwiper.store import ServerTree
from splitwiper.wire import Ticket

Stage = Literal["received", "accepted", "erased", "retrained", "settled", "certified"]


def begun(ticket: Ticket, case: Case | None) -> str:
    """When the time to answer a request began: when it was received, however long it took to accept it."""
    return case.received if case is not None else ticket.received


def stages(tree: ServerTree, ticket: Ticket | None, case: Case | None) -> dict[Stage, str]:
    """The stages that a request has reached, in order, and when it did.

    Args:
        tree: the server's.
        ticket: where it stands; None before it is accepted.
        case: as it came; None where it came another way than over the network.
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
        path = kept_at(tree, ticket.id)
        if path.exists():
            found["certified"] = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    return found
