"""Certificates of requests received over the network: with the client's signed request, and its deadline."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from splitwiper.service.certificate import Keyring, certify
from splitwiper.service.request_stages import begun
from splitwiper.service.requests import RequestRecord, RequestRecords
from splitwiper.store import ServerStore
from splitwiper.wire import Ticket


def due(ticket: Ticket, case: RequestRecord | None, days: float) -> datetime:
    """Return the time by which a request must be settled."""
    return datetime.fromisoformat(begun(ticket, case)) + timedelta(days=days)


def certified(store: ServerStore, cases: RequestRecords, ticket: str, *, days: float) -> dict[str, Any]:
    """Return the certificate of a settled request.

    Args:
        store: the server's store.
        cases: the requests as they were received.
        ticket: the request's ticket.
        days: the number of days within which it was to be settled.
    """
    case = cases.find(ticket)
    until, signed = due(store.ticket(ticket), case, days), case.signed if case else None
    return certify(store, ticket, Keyring.of(store).key(), due=until, request=signed)
