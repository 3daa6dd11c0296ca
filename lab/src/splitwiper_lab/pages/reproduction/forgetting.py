"""Claims (a) and (b): the forgotten label is gone, and other labels are retained better than by baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from splitwiper_lab.evaluation.comparison import Record, SeedSpread
from splitwiper_lab.evaluation.reproduction.growth import ours
from splitwiper_lab.pages.reproduction.claim import (
    NOT,
    ClaimEvidence,
    PaperClaim,
    plain,
    records_of,
    seeds_of,
    span,
    spread_told,
)
from splitwiper_lab.pages.reproduction.collected import Collected, Measured
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
Shares = Sequence[tuple[str, int, float]]
"""Accuracies on the forgotten label, each with a description and a seed."""


def forgotten(collected: Collected) -> PaperClaim:
    """Judge claim (a): the forgotten label has an accuracy of 0 %."""
    found = [_gone(shares, source) for shares, source in _forgotten(collected) if shares]
    claim = PaperClaim(
        "a",
        "The forgotten label is gone",
        "Once a client has forgotten a label that it alone holds, the model is right on 0 % of that label's test rows.",
        tuple(found),
        "It holds if not one test row of the label is answered rightly, in any cell and with any seed.",
    )
    why = ""
    if claim.verdict == NOT:
        where = ", ".join(one.source for one in found if one.reached < 1)
        why = f"Some test rows of the forgotten label are still answered rightly: see {where}."
    return replace(claim, why=why)


def _forgotten(collected: Collected) -> Iterator[tuple[Shares, str]]:
    for measured in collected.measured:
        if measured.experiment.kind == "compare" and "forgotten-zero" in measured.experiment.checks:
            shares: list[tuple[str, int, float]] = []
            for condition, records in records_of(measured).items():
                shares += _ours(condition, records)
            yield shares, measured.experiment.id
    if collected.comparison:
        yield _ours("", collected.comparison.records), collected.comparison.file
    if collected.tradeoff:
        points = collected.tradeoff.points
        yield [(point.setting, 0, point.forgotten) for point in points], collected.tradeoff.file


def _ours(condition: str, records: Sequence[Record]) -> list[tuple[str, int, float]]:
    shares = []
    for record in records:
        if record.kind == "splitwiper" and record.unlearned.forgotten is not None:
            where = f"{condition}, {record.system}" if condition else record.system
            shares.append((where, record.seed, record.unlearned.forgotten))
    return shares


def _gone(shares: Shares, source: str) -> ClaimEvidence:
    where, _, worst = max(shares, key=lambda one: one[2])
    cells: dict[str, list[float]] = {}
    for name, _, share in shares:
        cells.setdefault(name, []).append(share)
    many = f"in each of {len(cells)} combinations" if len(cells) > 1 else f"with {where}"
    ours = f"0.00\xa0% {many}" if worst == 0 else f"up to {100 * worst:.2f}\xa0%, with {where}"
    says = "The forgotten label, after forgetting"
    return ClaimEvidence(says, ours, "0\xa0%", float(worst == 0), seeds_of(list(cells.values())), source, decisive=True)


def retained(collected: Collected) -> PaperClaim:
    """Judge claim (b): other labels are retained better than by the baselines."""
    found: list[ClaimEvidence] = []
    for measured in collected.of("effectiveness-"):
        found += _against(plain(measured, records_of(measured)), measured.experiment.id, measured)
    compared = collected.comparison
    if compared:
        kept = compared.records if not found else [r for r in compared.records if not _interleaved(r)]
        found += _against({_data(str(compared.about.get("title", ""))): kept}, compared.file)
    return PaperClaim(
        "b",
        "Other labels are kept better",
        "Labels that stay are answered better than by split learning as it was: after forgetting by 8 %, and before "
        "it by 4.77 points against vanilla and 4.18 points against U-shaped split learning on CIFAR-10.",
        tuple(found),
        "A difference counts (half) if it is larger than its deviation over seeds, or than a point where there is one "
        "seed, and counts in full if it is as large as the paper's.",
        _schedules(compared.records if compared else (), found) if any(one.reached < 1 for one in found) else "",
    )


def _data(title: str) -> str:
    """Return the name of a comparison's data as it is written in conditions."""
    return {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}.get(title, title)


def _interleaved(record: Record) -> bool:
    """Return whether a record is of a baseline that the experiments also have."""
    return record.kind != "splitwiper" and "turns" not in record.system


def _against(
    conditions: Mapping[str, Sequence[Record]], source: str, measured: Measured | None = None
) -> list[ClaimEvidence]:
    """Compare SplitWiper without expansion with each retraining baseline, after forgetting and before."""
    names: dict[str, str] = {}
    for records in conditions.values():
        names |= {r.system: r.kind for r in records if r.kind in _NAMES and r.unlearning == "retraining"}
    out = []
    for phase, (name, kind) in product(("unlearned", "learned"), names.items()):
        differences, goals, reached = [], [], []
        for condition, records in conditions.items():
            found = _differences(records, name, phase)
            if found.count:
                goal = _goal(measured, condition, phase, name, kind)
                differences.append(found)
                goals.append(goal)
                reached.append(_reached(found, goal))
        if not differences:
            continue
        said = [100 * goal for goal in sorted(set(goals)) if goal]
        out.append(
            ClaimEvidence(
                f"Other labels {'after' if phase == 'unlearned' else 'before'} forgetting, against {name}",
                _points(differences),
                span(said, "{:+.3g}", " points") if said else "",
                1.0 if min(reached) >= 1 else 0.5 if max(reached) > 0 else 0.0,
                seeds_of([range(spread.count) for spread in differences]),
                source,
            )
        )
    return out


def _goal(measured: Measured | None, condition: str, phase: str, other: str, kind: str) -> float:
    """Return the improvement that the paper claims: from its table if it has figures, else from its text."""
    mine = next((s.name for s in ours(measured.experiment)), "") if measured else ""
    if measured:
        pair = [reported(measured.experiment, condition, f"{phase}.retained", name) for name in (mine, other)]
        if pair[0] is not None and pair[1] is not None:
            return round(pair[0] - pair[1], 4) / 100
    if phase == "unlearned":
        return RETAINED
    return next((gains[kind] for begins, gains in GAINS.items() if condition.startswith(begins)), 0.0)


def _differences(records: Sequence[Record], other: str, phase: str) -> SeedSpread:
    """Return SplitWiper's accuracy on other labels minus another system's, seed by seed."""
    ours = next((r.system for r in records if r.kind == "splitwiper"), None)
    mine: dict[int, float] = {}
    theirs: dict[int, float] = {}
    for record in records:
        value = (record.unlearned if phase == "unlearned" else record.learned).retained
        if value is None:
            continue
        if record.system == ours:
            mine[record.seed] = value
        elif (record.system, record.unlearning) == (other, "retraining"):
            theirs[record.seed] = value
    return SeedSpread.of(mine[seed] - theirs[seed] for seed in sorted(mine) if seed in theirs)


def _reached(difference: SeedSpread, goal: float) -> float:
    """Return 1 if the goal is reached, 0.5 if SplitWiper is better by more than seeds differ, and 0 otherwise."""
    mean = difference.mean or 0.0
    around = _ALONE if difference.deviation is None else difference.deviation
    if mean <= 0 or mean <= around:
        return 0.0
    return 1.0 if mean >= goal else 0.5


def _points(differences: Sequence[SeedSpread]) -> str:
    if len(differences) == 1:
        one = differences[0]
        deviation = 100 * one.deviation if one.deviation is not None else None
        scaled = SeedSpread(100 * (one.mean or 0.0), deviation, one.count)
        return f"{spread_told(scaled, '{:+.2f}')} points"
    told = span([100 * (one.mean or 0.0) for one in differences], "{:+.2f}", " points")
    return f"{told} in {len(differences)} conditions"


def _schedules(records: Sequence[Record], found: Sequence[ClaimEvidence]) -> str:
    """Explain the effect of a baseline's schedule."""
    level = [one for one in found if "turns" not in one.says]
    told = []
    for kind, name in _NAMES.items():
        by: dict[str, list[float | None]] = {}
        for r in records:
            if r.kind == kind and r.unlearning == "retraining":
                by.setdefault("turns" if "turns" in r.system else "interleaved", []).append(r.unlearned.retained)
        if len(by) == 2:
            a = 100 * (SeedSpread.of(by["interleaved"]).mean or 0.0)
            b = 100 * (SeedSpread.of(by["turns"]).mean or 0.0)
            told.append(f"{name} split learning keeps {a:.1f}\xa0% with clients' batches interleaved and {b:.1f}\xa0% ")
            told[-1] += "with clients taking turns"
    start = "Some differences are smaller than claimed, or none"
    if level and not any(one.reached for one in level):
        start = "Baselines whose clients' batches are interleaved answer at least as well"
    tail = " What a baseline reaches depends on its schedule; the paper does not say which one it used."
    return f"{start}: {'; '.join(told)}.{tail}" if told else f"{start}."
