"""The result of checking a certificate: findings, each with an outcome and an explanation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from splitwiper.errors import FormatError
from splitwiper.federation.verify import Outcome as Recomputed

Outcome = Recomputed | Literal["holds", "unchecked"]
RECOMPUTED = "recomputed"
"""Name of the finding that sums up the attestations."""
Standing = Literal["unknown", "current", "superseded"]


@dataclass(frozen=True)
class Finding:
    """One check and its outcome."""

    what: str
    outcome: Outcome
    detail: str


class CheckFailed(Exception):
    """Ends a check that does not hold, with an explanation and the finding's outcome."""

    def __init__(self, detail: str, outcome: Outcome = "mismatch") -> None:
        super().__init__(detail)
        self.outcome = outcome


def finding_of(what: str, check: Callable[[], str]) -> Finding:
    """Return the finding of a check, which explains why it holds, or raises `CheckFailed`, or `FormatError`."""
    try:
        return Finding(what, "holds", check())
    except CheckFailed as problem:
        return Finding(what, problem.outcome, str(problem))
    except FormatError as problem:
        return Finding(what, "mismatch", str(problem).removesuffix("."))


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
        outcomes = {check.outcome for check in self.checks}
        # the first of these that occurs counts; what is unchecked counts neither way
        order: tuple[Outcome, ...] = ("mismatch", "unverifiable", "not_comparable", "exact")
        return next((outcome for outcome in order if outcome in outcomes), "holds")

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
        decisive = [check for check in self.checks if check.outcome == self.outcome]
        if not self.holds:
            if self.standing == "superseded" and self.outcome == "unverifiable":
                return f"signature and ledger hold, as a statement about the past; {decisive[0].detail}"
            return decisive[0].detail
        # a dict, not a set: names once each, in the order of the checks
        names = ", ".join({check.what: None for check in decisive})
        if self.exact:
            return f"signed, in the ledger, and recomputed from the surviving data, bit for bit: {names}"
        for check in self.checks:
            if check.what == RECOMPUTED:  # by some, but not everything
                return f"{names} are right; {check.detail}"
        return f"{names} are right; not recomputed by anybody yet"
