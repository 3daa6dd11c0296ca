"""The result of checking a certificate: findings, each with an outcome and an explanation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from splitwiper.federation.verify import Outcome as Recomputed

Outcome = Recomputed | Literal["holds", "unchecked"]
RECOMPUTED = "recomputed"
"""Name of the finding that sums up the attestations."""
Standing = Literal["unknown", "current", "superseded"]
_WORST: tuple[Outcome, ...] = ("mismatch", "unverifiable", "not_comparable")


@dataclass(frozen=True)
class Finding:
    """One check and its outcome."""

    what: str
    outcome: Outcome
    detail: str


@dataclass(frozen=True)
class Checked:
    """The result of checking a certificate.

    ``holds``: everything that could be checked is right. ``exact``: it was also recomputed, here or by attesters, and
    is equal bit for bit. ``mismatch``: something is wrong. ``not_comparable`` and ``unverifiable`` are as in
    `Verification`. A finding may also be ``unchecked``: it says what could not be checked here, and why.

    Attributes:
        checks: the findings.
        certificate: the certificate's contents; empty if unreadable. Rely on them only if nothing is wrong.
        standing: whether shard and model are still those of the certificate, as far as is known. A superseded
            certificate is a true statement about the past: signature and ledger can be checked, but not recomputed.
    """

    checks: tuple[Finding, ...]
    certificate: Mapping[str, Any] = field(default_factory=dict)
    standing: Standing = "unknown"

    @property
    def outcome(self) -> Outcome:
        """The worst outcome; ``exact`` only if something was recomputed."""
        found = {check.outcome for check in self.checks}
        best: Outcome = "exact" if "exact" in found else "holds"
        return next((outcome for outcome in _WORST if outcome in found), best)

    @property
    def holds(self) -> bool:
        """Whether every check succeeded."""
        return self.outcome in ("holds", "exact")

    def __bool__(self) -> bool:
        """Return `holds`, so that a failed check is falsy."""
        return self.holds

    @property
    def exact(self) -> bool:
        """Whether it was recomputed and is equal, bit for bit."""
        return self.outcome == "exact"

    @property
    def reason(self) -> str:
        """The reason for the outcome, in one sentence."""
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
        """What is known about recomputing, if it does not cover everything."""
        told = [check.detail for check in self.checks if check.what == RECOMPUTED]
        return told[0] if told else "not recomputed by anybody yet"
