"""A claim of the paper, the evidence for and against it, and the verdict that follows from the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from splitwiper_lab.evaluation.comparison import Record, SeedSpread
from splitwiper_lab.pages.reproduction.collected import Measured, seeds_told

HOLDS, PART, NOT, OPEN = "holds", "holds in part", "does not hold", "not measured yet"
"""The possible verdicts."""


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
        reached = [one.reached for one in self.evidence]
        if any(one.decisive and one.reached < 1 for one in self.evidence) or max(reached) <= 0:
            return NOT
        return HOLDS if min(reached) >= 1 else PART


def records_of(measured: Measured) -> dict[str, list[Record]]:
    """Return the records of an experiment of kind ``compare``, by condition, in the experiment's order."""
    out: dict[str, list[Record]] = {condition.name: [] for condition in measured.experiment.conditions}
    place = {system.name: number for number, system in enumerate(measured.experiment.systems)}
    for result in sorted(measured.results, key=lambda r: (r.cell.seed, place[r.cell.system])):
        out[result.cell.condition].append(Record.from_dict(result.values))
    return {name: records for name, records in out.items() if records}


def plain(measured: Measured, records: dict[str, list[Record]]) -> dict[str, list[Record]]:
    """Leave out SplitWiper's records with expanded labels: baselines are compared with SplitWiper without expansion."""
    masked = {s.name for s in measured.experiment.systems if s.settings.get("masking")}
    unmasked = {name: [r for r in some if r.system not in masked] for name, some in records.items()}
    return {name: kept for name, kept in unmasked.items() if kept}


def seeds_of(groups: Sequence[Sequence[object]]) -> str:
    """Say how many seeds each of some groups has."""
    return seeds_told([len(group) for group in groups if group])


def span(values: Sequence[float], form: str = "{:.1f}", unit: str = "\xa0%") -> str:
    r"""Format values as one number, or as a range from the lowest to the highest.

    >>> span([1.0]), span([2.0, 1.0, 1.5])
    ('1.0\xa0%', '1.0 to 2.0\xa0%')
    """
    low, high = (form.format(value).replace("-", "−") for value in (min(values), max(values)))
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def spread_told(spread: SeedSpread, form: str = "{:.2f}") -> str:
    """Format a mean with its deviation, both already in the unit to show.

    >>> spread_told(SeedSpread(1.0, 0.5, 3))
    '1.00 ± 0.50'
    """
    around = f" ± {form.format(spread.deviation).lstrip('+')}" if spread.deviation is not None else ""
    return form.format(spread.mean or 0.0).replace("-", "−") + around
