"""The result of verifying anything: a run, a store, a site, a certificate or an audit.

A `Verification` is a list of checks, each with its outcome and an explanation. Its own outcome is the worst of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any, Literal

from splitwiper.errors import CorruptError, FormatError, StoreError

Outcome = Literal["exact", "holds", "mismatch", "not_comparable", "unverifiable", "unchecked"]
Claim = Literal["rows", "state", "history"]
NOTHING_ASKED = "nothing was asked"
RECOMPUTED = "recomputed"
"""Name of the check that sums up what others recomputed."""
# The first of these that occurs counts. A mismatch accuses somebody, so nothing that could not be checked may hide it;
# and one recomputation makes the whole exact only where nothing is wrong or missing.
_DECISIVE: tuple[Outcome, ...] = ("mismatch", "unverifiable", "not_comparable", "exact")


class CheckFailed(Exception):
    """Ends a check that does not hold, with an explanation and the check's outcome."""

    def __init__(self, detail: str | Exception, outcome: Outcome = "mismatch") -> None:
        self.detail, self.outcome = str(detail).removesuffix("."), outcome
        super().__init__(self.detail)


@dataclass(frozen=True)
class Check:
    """One check and its outcome.

    Attributes:
        what: the party, record or property that was checked.
        outcome: the outcome.
        detail: the outcome as a sentence.
        claim: what it belongs to: the requested rows are gone, the state follows from the rest, or the history only
            grew. None where records are checked that somebody else made, such as a certificate.
    """

    what: str
    outcome: Outcome
    detail: str
    claim: Claim | None = None

    @property
    def exact(self) -> bool:
        """Whether it was recomputed and is equal bit for bit."""
        return self.outcome == "exact"

    @property
    def subject(self) -> str:
        """The claim and the party, as text."""
        if self.claim is None:
            return self.what
        return f"{'rows gone' if self.claim == 'rows' else self.claim}: {self.what}"


def run_check(what: str, check: Callable[[], str], claim: Claim | None = None) -> Check:
    """Run a check, which returns why it holds, or raises `CheckFailed`.

    Damaged files are a mismatch. Where a claim is checked, a disk that fails proves nothing; otherwise it is raised.
    """
    try:
        return Check(what, "holds" if claim is None else "exact", check(), claim)
    except CheckFailed as problem:
        return Check(what, problem.outcome, problem.detail, claim)
    except StoreError as problem:
        failed = failed_check(what, problem, claim)
        # what the caller may repair, such as a full disk, must not end as a verdict on a certificate or an audit
        if claim is None and failed.outcome != "mismatch":
            raise
        return failed


def failed_check(what: str, problem: StoreError, claim: Claim | None = None) -> Check:
    """Return what an error proves: that bytes are not those that were written, or nothing."""
    outcome: Outcome = "mismatch" if isinstance(problem, CorruptError | FormatError) else "unverifiable"
    # an operating system's error has its own words, and its number and path would only repeat them
    return Check(what, outcome, (problem.strerror or str(problem)).removesuffix("."), claim)


def worst(checks: Sequence[Check]) -> Outcome:
    """Return the worst outcome; ``exact`` only if something was recomputed. What is unchecked counts neither way."""
    outcomes = set(map(attrgetter("outcome"), checks))
    for outcome in _DECISIVE:
        if outcome in outcomes:
            return outcome
    return "holds"


@dataclass(frozen=True)
class Verification:
    """The outcome of a verification.

    ``exact``: recomputed, here or by attesters, and equal bit for bit. ``holds``: everything that could be checked is
    right, and nobody recomputed it. ``mismatch``: recomputed or compared, and different. ``not_comparable``: the
    numerics here differ (another torch, device or instruction set) from the result's. ``unverifiable``: something
    needed is missing (a key, a client's folder, a superseded model). A check may also be ``unchecked``: its detail says
    why it could not be made here.
    """

    checks: tuple[Check, ...]

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of the checks."""
        return worst(self.checks)

    @property
    def exact(self) -> bool:
        """Whether everything was recomputed and is equal bit for bit."""
        return self.outcome == "exact"

    @property
    def holds(self) -> bool:
        """Whether every check succeeded."""
        return self.outcome in ("holds", "exact")

    def __bool__(self) -> bool:
        """Return `holds`: a failed verification is false."""
        return self.holds

    @property
    def claims(self) -> dict[Claim, Outcome]:
        """The outcome of each of the three claims that were checked."""
        by_claim: dict[Claim, list[Check]] = {}
        for check in self.checks:
            if check.claim is not None:
                by_claim.setdefault(check.claim, []).append(check)
        return {claim: worst(checks) for claim, checks in by_claim.items()}

    @property
    def reason(self) -> str:
        """The reason for the outcome, in one sentence."""
        decisive = [check for check in self.checks if check.outcome == self.outcome]
        if not self.holds:
            return decisive[0].detail
        if self.claims:
            return _all_recomputed(self.checks)
        # a dict, not a set: names once each, in the order of the checks
        names = ", ".join(dict.fromkeys(map(attrgetter("what"), decisive)))
        if self.exact:
            return f"signed, in the ledger, and recomputed from the surviving data, bit for bit: {names}"
        for check in self.checks:
            if check.what == RECOMPUTED:  # by some, but not everything
                return f"{names} are right; {check.detail}"
        return f"{names} are right; not recomputed by anybody yet"

    def to_dict(self) -> dict[str, Any]:
        """Return outcome, reason and checks; a check has a claim only where there is one."""
        checks = []
        for check in self.checks:
            fields = asdict(check)
            if check.claim is None:
                del fields["claim"]
            checks.append(fields)
        return {"outcome": self.outcome, "reason": self.reason, "checks": checks}


def _all_recomputed(checks: Sequence[Check]) -> str:
    """Return the sentence for an exact verification of all three claims."""
    parties, gone = set[str](), ""
    for check in checks:
        if check.claim == "state":
            parties.add(check.what)
        elif check.claim == "rows" and check.detail != NOTHING_ASKED:
            gone = "the requested rows are gone; "
    *others, last = sorted(parties)
    names = f"{', '.join(others)} and {last} were" if others else f"{last} was"
    equal = "and are equal" if others else "and is equal"
    return f"{gone}{names} recomputed from the surviving data {equal}, bit for bit; the history only grew"
