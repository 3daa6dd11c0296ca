"""A claim of the paper, the evidence for and against it, and the verdict that follows from the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from splitwiper_lab.evaluation.comparison import Record, SeedSpread
from splitwiper_lab.evaluation.reproduction.checks import HOLDS, NOT, OPEN
from splitwiper_lab.pages.reproduction.collected import Measured, seed_counts

PART = "holds in part"
"""A fourth verdict: a claim has more than one piece of evidence."""


@dataclass(frozen=True)
class ClaimEvidence:
    """One line of evidence.

    Attributes:
        says: the quantity that was measured.
        ours: our figures.
        paper: the paper's figures, if it has any.
        reached: 1 if the figures are as claimed, 0 if not, and between the two if they are so in part.
        seeds: the number of seeds.
        source: the experiment or file that the evidence is from.
        decisive: whether the claim fails if this is not as claimed.
    """

    says: str
    ours: str
    paper: str
    reached: float
    seeds: str
    source: str
    decisive: bool = False


@dataclass(frozen=True)
class PaperClaim:
    """One of the paper's claims.

    Attributes:
        key: its letter.
        title: a short title.
        says: the claim in our own words.
        evidence: the evidence for and against it.
        rule: how the verdict follows from the evidence.
        why: the reason why it does not hold, or only in part.
    """

    key: str
    title: str
    says: str
    evidence: tuple[ClaimEvidence, ...]
    rule: str
    why: str = ""

    @property
    def verdict(self) -> str:
        """The verdict that follows from the evidence.

        >>> PaperClaim("a", "", "", (), "").verdict
        'not measured yet'
        """
        if not self.evidence:
            return OPEN
        reached = [evidence.reached for evidence in self.evidence]
        if min(reached) >= 1:  # also what is decisive
            return HOLDS
        refuted = any(evidence.decisive and evidence.reached < 1 for evidence in self.evidence)
        return NOT if refuted or max(reached) <= 0 else PART


def records_of(measured: Measured, *, expanded: bool) -> dict[str, list[Record]]:
    """Return the records of an experiment of kind ``compare``, by condition, in the experiment's order.

    The paper compares baselines without SplitWiper's expanded labels, which ``expanded`` includes.
    """
    systems = measured.experiment.systems
    order = measured.experiment.names
    left_out = set[str]() if expanded else {system.name for system in systems if system.settings.get("masking")}
    by_condition: dict[str, list[Record]] = {condition.name: [] for condition in measured.experiment.conditions}
    # verdicts must not depend on the order in which cells happened to be measured
    for result in sorted(measured.results, key=lambda result: (result.cell.seed, order.index(result.cell.system))):
        if result.cell.system not in left_out:
            by_condition[result.cell.condition].append(Record.from_dict(result.values))
    return {name: records for name, records in by_condition.items() if records}


def seed_range(spreads: Iterable[SeedSpread]) -> str:
    """Say how many seeds some quantities have."""
    return seed_counts(map(attrgetter("count"), spreads))


def percents(spreads: Iterable[SeedSpread]) -> list[float]:
    """Return the means of shares, in percent."""
    return [100 * (spread.mean or 0.0) for spread in spreads]


def span(values: Sequence[float], form: str = "{:.1f}", unit: str = "\xa0%") -> str:
    r"""Format values as one number, or as a range from the lowest to the highest.

    >>> span([1.0]), span([2.0, 1.0, 1.5])
    ('1.0\xa0%', '1.0 to 2.0\xa0%')
    """
    low, high = form.format(min(values)).replace("-", "−"), form.format(max(values)).replace("-", "−")
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"
