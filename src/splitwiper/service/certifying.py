"""Certificates of requests that came over the network: with the request as the client signed it, and its deadline."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from splitwiper.service.cases import Case, Cases
from splitwiper.service.certificate import Keyring, certify
from splitwiper.service.stages import begun
from splitwiper.store import ServerTree
from splitwiper.wire import Ticket


def due(ticket: Ticket, case: Case | None, days: float) -> datetime:
    """Until when a request is to be settled."""
    return datetime.fromisoformat(begun(ticket, case)) + timedelta(days=days)


def certified(tree: ServerTree, cases: Cases, ticket: str, *, days: float) -> dict[str, Any]:
    """The certificate of a settled request.

    Args:
        tree: the server's.
        cases: requests as they came.
        ticket: the request.
        days: within which it was to be settled.
    """
    case = cases.find(ticket)
    until, signed = due(tree.ticket(ticket), case, days), case.signed if case else None
    return certify(tree, ticket, Keyring.of(tree).key(), due=until, request=signed)
