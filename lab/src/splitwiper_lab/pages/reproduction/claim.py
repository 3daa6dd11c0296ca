"""A claim of the paper, the evidence for and against it, and the verdict that follows from the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from splitwiper_lab.evaluation.comparison import Record, Spread
from splitwiper_lab.pages.reproduction.collected import Measured, seeds_told

HOLDS, PART, NOT, OPEN = "holds", "holds in part", "does not hold", "not measured yet"
"""Verdicts."""


@dataclass(frozen=True)
class Evidence:
    """One line of evidence.

    Attributes:
        says: what was measured.
        ours: our figures.
        paper: the paper's, where it has any.
        reached: 1 where it is as claimed, 0 where it is not, between the two where it is so in part.
        seeds: how many.
        source: the experiment or file that it is from.
        decisive: the claim does not hold where this is not as claimed.
    """

    says: str
    ours: str
    paper: str
    reached: float
    seeds: str
    source: str
    decisive: bool = False


@dataclass(frozen=True)
class Claim:
    """One of the paper's claims.

    Attributes:
        key: its letter.
        title: in a few words.
        says: in our own words.
        evidence: for and against.
        rule: how the verdict follows.
        why: the reason, where it does not hold or does so in part.
    """

    key: str
    title: str
    says: str
    evidence: tuple[Evidence, ...]
    rule: str
    why: str = ""

    @property
    def verdict(self) -> str:
        """What follows from the evidence.

        >>> Claim("a", "", "", (), "").verdict
        'not measured yet'
        """
        if not self.evidence:
            return OPEN
        reached = [one.reached for one in self.evidence]
        if any(one.decisive and one.reached < 1 for one in self.evidence) or max(reached) <= 0:
            return NOT
        return HOLDS if min(reached) >= 1 else PART


def records_of(measured: Measured) -> dict[str, list[Record]]:
    """The records of a comparing experiment, by condition, in the experiment's order."""
    out: dict[str, list[Record]] = {condition.name: [] for condition in measured.experiment.conditions}
    place = {system.name: number for number, system in enumerate(measured.experiment.systems)}
    for result in sorted(measured.results, key=lambda r: (r.cell.seed, place[r.cell.system])):
        out[result.cell.condition].append(Record.from_dict(result.values))
    return {name: records for name, records in out.items() if records}


def plain(measured: Measured, records: dict[str, list[Record]]) -> dict[str, list[Record]]:
    """Without SplitWiper's records where labels are expanded: baselines are compared with SplitWiper as such."""
    masked = {s.name for s in measured.experiment.systems if s.settings.get("masking")}
    return {name: kept for name, some in records.items() if (kept := [r for r in some if r.system not in masked])}


def seeds_of(groups: Sequence[Sequence[object]]) -> str:
    """How many seeds each of some groups has."""
    return seeds_told([len(group) for group in groups if group])


def span(values: Sequence[float], form: str = "{:.1f}", unit: str = "\xa0%") -> str:
    r"""Values as one, or from the least to the most.

    >>> span([1.0]), span([2.0, 1.0, 1.5])
    ('1.0\xa0%', '1.0 to 2.0\xa0%')
    """
    low, high = (form.format(value).replace("-", "−") for value in (min(values), max(values)))
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def spread_told(spread: Spread, form: str = "{:.2f}") -> str:
    """A mean with its deviation, already in the unit shown.

    >>> spread_told(Spread(1.0, 0.5, 3))
    '1.00 ± 0.50'
    """
    around = f" ± {form.format(spread.deviation).lstrip('+')}" if spread.deviation is not None else ""
    return form.format(spread.mean or 0.0).replace("-", "−") + around
