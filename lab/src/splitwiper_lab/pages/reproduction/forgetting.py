"""Claims (a) and (b): the forgotten label is gone, and other labels are retained better than by baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from splitwiper_lab.evaluation.comparison import Record, SeedSpread
from splitwiper_lab.evaluation.reproduction.checks import NOT
from splitwiper_lab.evaluation.reproduction.growth import ours
from splitwiper_lab.pages.reproduction.claim import ClaimEvidence, PaperClaim, percents, records_of, seed_range, span
from splitwiper_lab.pages.reproduction.collected import Collected, Measured, seed_counts
from splitwiper_lab.pages.reproduction.quantities import reported

RETAINED = 0.08
"""How much more accuracy on other labels the paper claims after forgetting."""
GAINS = {
    "CIFAR-10 and MNIST": {"vanilla": 0.0298, "u-shaped": 0.0354},
    "CIFAR-100": {"vanilla": 0.0437, "u-shaped": 0.0382},
    "CIFAR-10": {"vanilla": 0.0477, "u-shaped": 0.0418},
}
"""How much more accuracy it claims after learning (Section 6.3), by the start of a condition's name."""
_ALONE = 0.01
"""A difference of this size or less may be chance if there is only one seed."""
_NAMES = {"vanilla": "vanilla", "u-shaped": "U-shaped"}
_CONDITIONS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
"""The names of comparisons' data as they are written in conditions."""


@dataclass(frozen=True)
class ForgottenShares:
    """Accuracies on the forgotten label from one experiment or file: one for each seed, by where they were measured."""

    source: str
    shares: dict[str, list[float]]

    def add(self, where: str, share: float) -> None:
        """Add the accuracy of one seed."""
        self.shares.setdefault(where, []).append(share)

    def add_records(self, condition: str, records: Sequence[Record]) -> None:
        """Add the accuracies of SplitWiper's records."""
        for record in records:
            if record.kind == "splitwiper" and record.unlearned.forgotten is not None:
                where = f"{condition}, {record.system}" if condition else record.system
                self.add(where, record.unlearned.forgotten)


def forgotten(collected: Collected) -> PaperClaim:
    """Judge claim (a): the forgotten label has an accuracy of 0 %."""
    evidence = [_gone(found) for found in _forgotten(collected) if found.shares]
    claim = PaperClaim(
        "a",
        "The forgotten label is gone",
        "Once a client has forgotten a label that it alone holds, the model is right on 0 % of that label's test rows.",
        tuple(evidence),
        "It holds if not one test row of the label is answered rightly, in any cell and with any seed.",
    )
    why = ""
    if claim.verdict == NOT:
        where = ", ".join(one.source for one in evidence if one.reached < 1)
        why = f"Some test rows of the forgotten label are still answered rightly: see {where}."
    return replace(claim, why=why)


def _forgotten(collected: Collected) -> Iterator[ForgottenShares]:
    for measured in collected.measured:
        if measured.experiment.kind == "compare" and "forgotten-zero" in measured.experiment.checks:
            found = ForgottenShares(measured.experiment.id, {})
            for condition, records in records_of(measured, expanded=True).items():
                found.add_records(condition, records)
            yield found
    if collected.comparison:
        found = ForgottenShares(collected.comparison.file, {})
        found.add_records("", collected.comparison.records)
        yield found
    if collected.tradeoff:
        found = ForgottenShares(collected.tradeoff.file, {})
        for point in collected.tradeoff.points:
            found.add(point.setting, point.forgotten)
        yield found


def _gone(found: ForgottenShares) -> ClaimEvidence:
    where = max(found.shares, key=lambda name: max(found.shares[name]))
    worst = max(found.shares[where])
    if worst:
        says = f"up to {100 * worst:.2f}\xa0%, with {where}"
    elif len(found.shares) > 1:
        says = f"0.00\xa0% in each of {len(found.shares)} combinations"
    else:
        says = f"0.00\xa0% with {where}"
    seeds = seed_counts(map(len, found.shares.values()))
    reached = float(worst == 0)
    return ClaimEvidence(
        "The forgotten label, after forgetting", says, "0\xa0%", reached, seeds, found.source, decisive=True
    )


def retained(collected: Collected) -> PaperClaim:
    """Judge claim (b): other labels are retained better than by the baselines."""
    evidence: list[ClaimEvidence] = []
    for measured in collected.of("effectiveness-"):
        evidence += _against(records_of(measured, expanded=False), measured.experiment.id, measured)
    compared = collected.comparison
    if compared:
        records = []
        for record in compared.records:
            # the experiments have the baselines too, except those that take turns
            if not evidence or record.kind == "splitwiper" or "turns" in record.system:
                records.append(record)
        title = str(compared.about.get("title", ""))
        evidence += _against({_CONDITIONS.get(title, title): records}, compared.file)
    all_reached = all(one.reached >= 1 for one in evidence)
    return PaperClaim(
        "b",
        "Other labels are kept better",
        "Labels that stay are answered better than by split learning as it was: after forgetting by 8 %, and before "
        "it by 4.77 points against vanilla and 4.18 points against U-shaped split learning on CIFAR-10.",
        tuple(evidence),
        "A difference counts (half) if it is larger than its deviation over seeds, or than a point where there is one "
        "seed, and counts in full if it is as large as the paper's.",
        "" if all_reached else _schedules(compared.records if compared else (), evidence),
    )


def _against(
    conditions: Mapping[str, Sequence[Record]], source: str, measured: Measured | None = None
) -> list[ClaimEvidence]:
    """Compare SplitWiper without expansion with each retraining baseline, after forgetting and before."""
    names: dict[str, str] = {}
    for records in conditions.values():
        for record in records:
            if record.kind in _NAMES and record.unlearning == "retraining":
                names[record.system] = record.kind
    evidence = []
    for phase, (name, kind) in product(("unlearned", "learned"), names.items()):
        differences, reached, goals = [], [], set[float]()
        for condition, records in conditions.items():
            difference = _difference(records, name, phase)
            if difference.count:
                goal = _goal(measured, condition, phase, name, kind)
                differences.append(difference)
                reached.append(_reached(difference, goal))
                goals.add(100 * goal)
        if not differences:  # no seed was measured with both
            continue
        when = "after" if phase == "unlearned" else "before"
        goals.discard(0.0)  # where the paper claims nothing
        evidence.append(
            ClaimEvidence(
                f"Other labels {when} forgetting, against {name}",
                _points(differences),
                span(sorted(goals), "{:+.3g}", " points") if goals else "",
                1.0 if min(reached) >= 1 else 0.5 if max(reached) > 0 else 0.0,
                seed_range(differences),
                source,
            )
        )
    return evidence


def _goal(measured: Measured | None, condition: str, phase: str, other: str, kind: str) -> float:
    """Return the improvement that the paper claims: from its table if it has figures, else from its text."""
    if measured and ours(measured.experiment):
        experiment, quantity = measured.experiment, f"{phase}.retained"
        mine = reported(experiment, condition, quantity, ours(experiment)[0].name)
        theirs = reported(experiment, condition, quantity, other)
        if mine is not None and theirs is not None:
            return round(mine - theirs, 4) / 100  # the table is in percent, with two digits
    if phase == "unlearned":
        return RETAINED
    for beginning, gains in GAINS.items():
        if condition.startswith(beginning):  # longer names come first: one begins as another does
            return gains[kind]
    return 0.0


def _difference(records: Sequence[Record], other: str, phase: str) -> SeedSpread:
    """Return SplitWiper's accuracy on other labels minus another system's, seed by seed."""
    first = None  # the first of SplitWiper's systems, which is the one without expansion
    mine: dict[int, float] = {}
    theirs: dict[int, float] = {}
    for record in records:
        if record.kind == "splitwiper":
            first = first or record.system
        value = (record.unlearned if phase == "unlearned" else record.learned).retained
        if value is None:
            continue
        if record.system == first:
            mine[record.seed] = value
        elif (record.system, record.unlearning) == (other, "retraining"):
            theirs[record.seed] = value
    return SeedSpread.of(mine[seed] - theirs[seed] for seed in sorted(mine.keys() & theirs.keys()))


def _reached(difference: SeedSpread, goal: float) -> float:
    """Return 1 if the goal is reached, 0.5 if SplitWiper is better by more than seeds differ, and 0 otherwise."""
    mean = difference.mean or 0.0
    around = _ALONE if difference.deviation is None else difference.deviation
    if mean <= 0 or mean <= around:  # it may be chance
        return 0.0
    return 1.0 if mean >= goal else 0.5


def _points(differences: Sequence[SeedSpread]) -> str:
    means = percents(differences)
    if len(differences) > 1:
        return f"{span(means, '{:+.2f}', ' points')} in {len(differences)} conditions"
    deviation = differences[0].deviation
    around = "" if deviation is None else f" ± {100 * deviation:.2f}"
    return f"{span(means, '{:+.2f}', '')}{around} points"


def _schedules(records: Sequence[Record], evidence: Sequence[ClaimEvidence]) -> str:
    """Explain the effect of a baseline's schedule."""
    effects = []
    for kind, name in _NAMES.items():
        accuracies: dict[bool, list[float | None]] = {True: [], False: []}
        for record in records:
            if record.kind == kind and record.unlearning == "retraining":
                accuracies["turns" in record.system].append(record.unlearned.retained)
        if accuracies[True] and accuracies[False]:
            interleaved, turns = percents([SeedSpread.of(accuracies[False]), SeedSpread.of(accuracies[True])])
            effects.append(
                f"{name} split learning keeps {interleaved:.1f}\xa0% with clients' batches interleaved and "
                f"{turns:.1f}\xa0% with clients taking turns"
            )
    level = [one for one in evidence if "turns" not in one.says]
    start = "Some differences are smaller than claimed, or none"
    if level and not any(one.reached for one in level):
        start = "Baselines whose clients' batches are interleaved answer at least as well"
    if not effects:
        return f"{start}."
    # said only where both schedules were measured
    tail = "What a baseline reaches depends on its schedule; the paper does not say which one it used."
    return f"{start}: {'; '.join(effects)}. {tail}"
