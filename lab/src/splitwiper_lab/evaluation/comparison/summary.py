"""Results over seeds: means with deviations, and costs as shares of vanilla split learning's costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from splitwiper_lab.baselines import Cost
from splitwiper_lab.evaluation.comparison.record import Phase, Record
from splitwiper_lab.evaluation.comparison.settings import KINDS

REFERENCE = ("vanilla", "retraining")
"""The system and unlearning method that costs are compared with."""


@dataclass(frozen=True)
class SeedSpread:
    """The mean and deviation of a quantity over seeds.

    >>> str(SeedSpread.of([0.5, 0.7])), str(SeedSpread.of([0.5])), str(SeedSpread.of([]))
    ('0.600 ± 0.141', '0.500', '–')
    """

    mean: float | None
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> SeedSpread:
        """Return the mean and sample deviation of the values that are not None."""
        there = [value for value in values if value is not None]
        if not there:
            return cls(None, None, 0)
        return cls(statistics.fmean(there), statistics.stdev(there) if len(there) > 1 else None, len(there))

    def told(self, how: Callable[[float], str]) -> str:
        """Return a text, with numbers formatted by ``how``."""
        if self.mean is None:
            return "–"
        return how(self.mean) + (f" ± {how(self.deviation)}" if self.deviation is not None else "")

    def __str__(self) -> str:
        return self.told(lambda value: f"{value:.3f}")


@dataclass(frozen=True)
class SummaryRow:
    """One system and one unlearning method, over all seeds. Costs are those of forgetting, unless named learning.

    Attributes:
        retained_learned: accuracy on labels that stay, before.
        forgotten_learned: accuracy on the label to forget, before.
        retained: accuracy on labels that stay, after.
        forgotten: accuracy on the label to forget, after.
        requester_seconds: the requesting client's computing, with the last epoch of its pre-training.
        requester_sending: seconds to send the requester's bytes at the given bandwidth.
        requester_handling: seconds for the requester's files, if the system has any.
        others_seconds: computing of all other clients together.
        others_sending: seconds to send their bytes.
        requester_bytes: up and down.
        others_bytes: up and down.
        share_of_vanilla: the requester's time (computing, files and sending) as a share of the reference's; and with
            all N epochs of pre-training on both sides.
        share_of_all: the same of all clients together.
        flops_of_vanilla: the same of the requester's operations only.
        took_part: number of clients that had to compute, and of all clients.
        exact: whether the result equals training without the rows, for every seed.
        verified: whether that was recomputed and compared, rather than follows from the method.
        away: whether forgetting worked with a client away; None if that was not tried.
    """

    system: str
    kind: str
    unlearning: str
    seeds: int
    retained_learned: SeedSpread
    forgotten_learned: SeedSpread
    retained: SeedSpread
    forgotten: SeedSpread
    requester_seconds: SeedSpread
    requester_sending: SeedSpread
    requester_handling: SeedSpread
    others_seconds: SeedSpread
    others_sending: SeedSpread
    requester_bytes: SeedSpread
    others_bytes: SeedSpread
    server_seconds: SeedSpread
    server_storage: SeedSpread
    share_of_vanilla: tuple[SeedSpread, SeedSpread]
    share_of_all: tuple[SeedSpread, SeedSpread]
    flops_of_vanilla: tuple[SeedSpread, SeedSpread]
    took_part: tuple[int, int]
    exact: bool
    verified: bool
    away: bool | None


def in_order(records: Sequence[Record]) -> list[Record]:
    """Sort records by kind of system, where no configuration gives an order."""
    first: dict[tuple[str, str], int] = {}
    for record in records:
        first.setdefault((record.system, record.unlearning), len(first))
    return sorted(records, key=lambda r: (_place(r.kind), first[r.system, r.unlearning], r.seed))


def _place(kind: str) -> int:
    """Return the place of a kind of system; those from outside come last."""
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


def summary(records: Sequence[Record], *, bandwidth: float) -> list[SummaryRow]:
    """Return rows in the order in which systems first occur.

    Args:
        records: the records of all seeds.
        bandwidth: bits per second.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.system, record.unlearning), []).append(record)
    reference = {r.seed: r for r in reversed(records) if (r.kind, r.unlearning) == REFERENCE}
    return [_line(group, reference, bandwidth) for group in groups.values()]


def _line(group: Sequence[Record], reference: dict[int, Record], bandwidth: float) -> SummaryRow:
    first = group[0]
    parts = [_Parts(record, bandwidth) for record in group]
    # a share is of vanilla's cost with the same seed; seeds that vanilla was not measured with have none
    pairs = []
    for record, mine in zip(group, parts, strict=True):
        if record.seed in reference:
            pairs.append((mine, _Parts(reference[record.seed], bandwidth)))

    def spread(value: Callable[[_Parts], float]) -> SeedSpread:
        return SeedSpread.of(map(value, parts))

    def shares(cost: Callable[[_Parts, float], float]) -> tuple[SeedSpread, SeedSpread]:
        last, whole = [], []
        for mine, other in pairs:
            last.append(_ratio(cost(mine, mine.last), cost(other, other.last)))
            whole.append(_ratio(cost(mine, 1.0), cost(other, 1.0)))
        return SeedSpread.of(last), SeedSpread.of(whole)

    return SummaryRow(
        system=first.system,
        kind=first.kind,
        unlearning=first.unlearning,
        seeds=len(group),
        retained_learned=SeedSpread.of(map(attrgetter("learned.retained"), group)),
        forgotten_learned=SeedSpread.of(map(attrgetter("learned.forgotten"), group)),
        retained=SeedSpread.of(map(attrgetter("unlearned.retained"), group)),
        forgotten=SeedSpread.of(map(attrgetter("unlearned.forgotten"), group)),
        requester_seconds=spread(lambda p: p.mine(p.last).seconds),
        requester_sending=spread(lambda p: p.mine(0).transmission(bandwidth)),
        requester_handling=spread(lambda p: p.mine(0).handling),
        others_seconds=spread(lambda p: p.theirs(p.last).seconds),
        others_sending=spread(lambda p: p.theirs(0).transmission(bandwidth)),
        requester_bytes=spread(lambda p: float(p.mine(0).traffic)),
        others_bytes=spread(lambda p: float(p.theirs(0).traffic)),
        server_seconds=SeedSpread.of(map(attrgetter("unlearned.server.seconds"), group)),
        server_storage=SeedSpread.of(float(r.unlearned.server.storage) for r in group),
        share_of_vanilla=shares(lambda p, n: p.time(p.mine(n))),
        share_of_all=shares(lambda p, n: p.time(p.mine(n)) + p.time(p.theirs(n))),
        flops_of_vanilla=shares(lambda p, n: float(p.mine(n).flops)),
        took_part=(max(len(r.unlearned.took_part) for r in group), len(first.learned.spent)),
        exact=all(r.exact for r in group),
        verified=all(r.exact and r.proof.startswith("recomputed") for r in group),
        away=None if first.away is None else all(r.away is not None and r.away["went_on"] for r in group),
    )


class _Parts:
    """One record's costs of forgetting, split by requester and others."""

    def __init__(self, record: Record, bandwidth: float) -> None:
        self._phase: Phase = record.unlearned
        self._bandwidth = bandwidth
        self.last = 1 / max(1, record.epochs["client"])
        self._requester = [record.requester]
        self._others = [name for name in record.learned.spent if name != record.requester]

    def mine(self, epochs: float) -> Cost:
        """Return the requester's costs, with the share ``epochs`` of its pre-training."""
        return self._phase.cost(self._requester, epochs=epochs)

    def theirs(self, epochs: float) -> Cost:
        """Return the costs of all other clients."""
        return self._phase.cost(self._others, epochs=epochs)

    def time(self, cost: Cost) -> float:
        """Return seconds of computing, handling files, and sending, one after another."""
        return cost.seconds + cost.handling + cost.transmission(self._bandwidth)


def _ratio(mine: float, other: float) -> float | None:
    return mine / other if other else None
