"""What sites and auditors share: calls to the server, its signing keys, and checks of its ledger."""

from splitwiper.service.calls.calls import Calls
from splitwiper.service.calls.guard import LedgerGuard

__all__ = ["Calls", "LedgerGuard"]
