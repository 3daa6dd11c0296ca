"""Results over seeds: means with deviations, and costs as shares of vanilla split learning's costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from splitwiper.formats import NONE
from splitwiper_lab.baselines import Cost
from splitwiper_lab.evaluation.comparison.record import Record
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
        known = [value for value in values if value is not None]
        if not known:
            return cls(None, None, 0)
        # of the sample: seeds are a few of many
        return cls(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))

    def text(self, form: Callable[[float], str]) -> str:
        """Return the mean and the deviation, formatted by ``form``."""
        if self.mean is None:
            return NONE
        return form(self.mean) + (f" ± {form(self.deviation)}" if self.deviation is not None else "")

    def __str__(self) -> str:
        return self.text("{:.3f}".format)


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

    def place(record: Record) -> tuple[int, int, int]:
        kind = KINDS.index(record.kind) if record.kind in KINDS else len(KINDS)  # those from outside come last
        return kind, first[record.system, record.unlearning], record.seed

    return sorted(records, key=place)


def summary(records: Sequence[Record], *, bandwidth: float) -> list[SummaryRow]:
    """Return rows in the order in which systems first occur; the bandwidth is in bits per second."""
    groups: dict[tuple[str, str], list[ForgettingCosts]] = {}
    reference: dict[int, ForgettingCosts] = {}
    for record in records:
        costs = ForgettingCosts(record, bandwidth)
        groups.setdefault((record.system, record.unlearning), []).append(costs)
        if (record.kind, record.unlearning) == REFERENCE:
            reference.setdefault(record.seed, costs)  # several schedules may be there: the first counts
    return [_row(group, reference) for group in groups.values()]


def _row(group: Sequence[ForgettingCosts], reference: Mapping[int, ForgettingCosts]) -> SummaryRow:
    records = list(map(attrgetter("record"), group))
    first = records[0]

    def spread(value: Callable[[ForgettingCosts], float]) -> SeedSpread:
        return SeedSpread.of(map(value, group))

    def recorded(name: str) -> SeedSpread:
        return SeedSpread.of(map(attrgetter(name), records))

    def shares(cost: Callable[[ForgettingCosts, float], float]) -> tuple[SeedSpread, SeedSpread]:
        last, whole = list[float | None](), list[float | None]()
        for mine in group:
            # a share is of vanilla's cost with the same seed; seeds that vanilla was not measured with have none
            vanilla = reference.get(mine.record.seed)
            if vanilla:
                last.append(_ratio(cost(mine, mine.last), cost(vanilla, vanilla.last)))
                whole.append(_ratio(cost(mine, 1.0), cost(vanilla, 1.0)))
        return SeedSpread.of(last), SeedSpread.of(whole)

    return SummaryRow(
        system=first.system,
        kind=first.kind,
        unlearning=first.unlearning,
        seeds=len(group),
        retained_learned=recorded("learned.retained"),
        forgotten_learned=recorded("learned.forgotten"),
        retained=recorded("unlearned.retained"),
        forgotten=recorded("unlearned.forgotten"),
        requester_seconds=spread(lambda costs: costs.requester(costs.last).seconds),
        requester_sending=spread(lambda costs: costs.requester(0).transmission(costs.bandwidth)),
        requester_handling=spread(lambda costs: costs.requester(0).handling),
        others_seconds=spread(lambda costs: costs.others(costs.last).seconds),
        others_sending=spread(lambda costs: costs.others(0).transmission(costs.bandwidth)),
        requester_bytes=spread(lambda costs: float(costs.requester(0).traffic)),
        others_bytes=spread(lambda costs: float(costs.others(0).traffic)),
        server_seconds=recorded("unlearned.server.seconds"),
        server_storage=spread(lambda costs: float(costs.record.unlearned.server.storage)),
        share_of_vanilla=shares(lambda costs, epochs: costs.time(costs.requester(epochs))),
        share_of_all=shares(
            lambda costs, epochs: costs.time(costs.requester(epochs)) + costs.time(costs.others(epochs))
        ),
        flops_of_vanilla=shares(lambda costs, epochs: float(costs.requester(epochs).flops)),
        took_part=(max(len(record.unlearned.took_part) for record in records), len(first.learned.spent)),
        exact=all(map(attrgetter("exact"), records)),
        verified=all(record.exact and record.proof.startswith("recomputed") for record in records),
        away=None if first.away is None else all(map(attrgetter("went_on"), records)),
    )


class ForgettingCosts:
    """One record's costs of forgetting, split by requester and others, with a share of pre-training's epochs."""

    def __init__(self, record: Record, bandwidth: float) -> None:
        self.record = record
        self.bandwidth = bandwidth
        # of N epochs of pre-training, the paper counts the last
        self.last = 1 / max(1, record.epochs["client"])

    def requester(self, epochs: float) -> Cost:
        """Return the requester's costs."""
        return self.record.unlearned.cost([self.record.requester], epochs=epochs)

    def others(self, epochs: float) -> Cost:
        """Return the costs of all other clients."""
        others = [name for name in self.record.learned.spent if name != self.record.requester]
        return self.record.unlearned.cost(others, epochs=epochs)

    def time(self, cost: Cost) -> float:
        """Return seconds of computing, handling files, and sending, one after another."""
        return cost.seconds + cost.handling + cost.transmission(self.bandwidth)


def _ratio(mine: float, other: float) -> float | None:
    return mine / other if other else None
