"""What came out of checking a certificate: each thing that was looked at, with an outcome and words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from splitwiper.federation.verify import Outcome as Recomputed

Outcome = Recomputed | Literal["holds", "unchecked"]
RECOMPUTED = "recomputed"
"""The finding that sums up what attestations say."""
Standing = Literal["unknown", "current", "superseded"]
_WORST: tuple[Outcome, ...] = ("mismatch", "unverifiable", "not_comparable")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    outcome: Outcome
    detail: str


@dataclass(frozen=True)
class Checked:
    """What came out of checking a certificate.

    ``holds``: all that could be checked is right. ``exact``: it was also recomputed, here or by those who attest to it,
    and is equal bit for bit. ``mismatch``: something is wrong. ``not_comparable`` and ``unverifiable`` are as in
    `Verification`. A finding may also be ``unchecked``: it says what nobody could look at here, and why.

    Attributes:
        checks: what was looked at.
        certificate: what the certificate says; empty where it could not be read. Rely on it only if nothing is wrong.
        standing: whether shard and model are still those of the certificate, as far as that is known. A superseded
            certificate is a true statement about the past: signature and ledger can be checked, recomputing is over.
    """

    checks: tuple[Finding, ...]
    certificate: Mapping[str, Any] = field(default_factory=dict)
    standing: Standing = "unknown"

    @property
    def outcome(self) -> Outcome:
        """The worst outcome; ``exact`` only where something was recomputed."""
        found = {check.outcome for check in self.checks}
        best: Outcome = "exact" if "exact" in found else "holds"
        return next((outcome for outcome in _WORST if outcome in found), best)

    @property
    def holds(self) -> bool:
        """Whether everything that was looked at is right."""
        return self.outcome in ("holds", "exact")

    def __bool__(self) -> bool:
        """Whether it holds: a check that failed is not true."""
        return self.holds

    @property
    def exact(self) -> bool:
        """Whether it was recomputed from the store and is equal, bit for bit."""
        return self.outcome == "exact"

    @property
    def reason(self) -> str:
        """Why the outcome is what it is, in one sentence."""
        if not self.holds:
            told = next(check.detail for check in self.checks if check.outcome == self.outcome)
            if self.standing == "superseded" and self.outcome == "unverifiable":
                return f"signature and ledger hold, as a statement about the past; {told}"
            return told
        what = ", ".join(dict.fromkeys(check.what for check in self.checks if check.outcome == self.outcome))
        if self.exact:
            return f"signed, in the ledger, and recomputed from the surviving data, bit for bit: {what}"
        return f"{what} are right; {self._recomputed}"

    @property
    def _recomputed(self) -> str:
        """What is known of recomputing, where it does not cover everything."""
        told = [check.detail for check in self.checks if check.what == RECOMPUTED]
        return told[0] if told else "not recomputed by anybody yet"
