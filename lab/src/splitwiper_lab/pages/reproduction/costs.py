"""Claim (c): clients' cost does not depend on the server's epochs, and is a small share of split learning's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from splitwiper_lab.evaluation.comparison import Record, SeedSpread, SummaryRow, summary
from splitwiper_lab.evaluation.reproduction import judged
from splitwiper_lab.evaluation.reproduction.checks import HOLDS
from splitwiper_lab.evaluation.reproduction.growth import baselines, exponents, ours
from splitwiper_lab.evaluation.reproduction.outcomes import BANDWIDTH, quiet
from splitwiper_lab.pages.reproduction.claim import ClaimEvidence, PaperClaim, percents, records_of, seed_range, span
from splitwiper_lab.pages.reproduction.collected import Collected, Measured, seed_counts

REQUESTER, ALL = 0.97, 0.99
"""The savings that the paper claims: at least this share of the requesting client's cost, and of all clients'."""


@dataclass(frozen=True)
class Savings:
    """SplitWiper's costs without expansion beside vanilla split learning's, a line for each condition.

    Attributes:
        lines: over all seeds.
        timed: over the seeds that ran alongside the fewest others, whose times are reliable; of records that say
            nothing of it, over all seeds.
        epochs: the paper's M.
        source: the experiment or file.
        codec: the codec of activations; empty if there is none.
    """

    lines: Sequence[SummaryRow]
    timed: Sequence[SummaryRow]
    epochs: int
    source: str
    codec: str


def cheaper(collected: Collected) -> PaperClaim:
    """Judge claim (c): clients' cost is constant in M, and 97 to 99 % lower."""
    over_epochs = collected.of("time-epochs")
    evidence: list[ClaimEvidence] = []
    for measured in over_epochs:
        evidence += _growth(measured)
    savings = list(map(_measured_savings, collected.of("time-epochs", "effectiveness-")))
    compared = collected.comparison
    if not over_epochs and compared:
        codec = str(compared.about.get("codec", "none"))
        savings.append(_savings({"": compared.records}, {}, compared.file, "" if codec == "none" else codec))
    savings = [one for one in savings if one.lines]  # without vanilla there is nothing to compare with
    for one in savings:
        evidence += _saved(one)
    claim = PaperClaim(
        "c",
        "Forgetting costs clients little",
        "What a client computes and sends does not depend on the server's epochs M. To forget, the requesting client "
        "spends about 1/M of what split learning takes, 97 to 99 % less, and all clients together over 99 % less.",
        tuple(evidence),
        "Savings are compared as whole percent; one of at least 90 % that is less than claimed counts half.",
    )
    return replace(claim, why=_why(savings) if savings and claim.verdict != HOLDS else "")


def _measured_savings(measured: Measured) -> Savings:
    """Return the savings of an experiment with the largest M of each group, which the paper's savings are about."""
    conditions = measured.experiment.conditions
    records = records_of(measured, expanded=False)
    most: dict[str, float] = {}
    codecs = set[str]()
    for condition in conditions:
        codecs.add(str(condition.work.get("client", {}).get("codec", "none")))
        if condition.name in records and condition.x:
            most[condition.group] = max(condition.x, most.get(condition.group, 0.0))
    for condition in conditions:
        if condition.x not in (None, most.get(condition.group)):
            records.pop(condition.name, None)
    calm = records_of(replace(measured, results=quiet(measured.results)), expanded=False)
    return _savings(records, calm, measured.experiment.id, ", ".join(sorted(codecs - {"none"})))


def _savings(
    records: Mapping[str, Sequence[Record]], calm: Mapping[str, Sequence[Record]], source: str, codec: str
) -> Savings:
    lines, timed, epochs = [], [], 0
    for condition, some in records.items():
        line = _line(some)
        if line:
            lines.append(line)
            # records of a comparison do not say what else was running
            timed.append(_line(calm.get(condition, ())) or line)
            epochs = epochs or some[0].epochs["server"]  # the same M in all conditions that are kept
    return Savings(lines, timed, epochs, source, codec)


def _line(records: Sequence[Record]) -> SummaryRow | None:
    """Return SplitWiper without expansion, if there are results of vanilla split learning to compare with."""
    for line in summary(records, bandwidth=BANDWIDTH):
        if line.kind == "splitwiper":
            return line if line.share_of_all[0].mean is not None else None
    return None


def _growth(measured: Measured) -> list[ClaimEvidence]:
    """Return evidence of how costs grow with M, from the experiment's own checks."""
    experiment = measured.experiment
    rows = (
        ("constant-in-epochs", "Growth of a client's work and traffic with M, SplitWiper", "constant", ours),
        ("linear-in-epochs", "Growth of a client's work and traffic with M, baselines", "linear", baselines),
    )
    evidence = []
    for check, says, paper, whose in rows:
        names = {system.name for system in whose(experiment)}
        slopes = []
        for quantity in ("learned.clients.flops", "learned.clients.sending"):
            for (_, system), (slope, points) in exponents(experiment, measured.results, quantity).items():
                if system in names and slope is not None and points > 1:  # one point has no slope
                    slopes.append(round(slope, 2) + 0.0)  # a rounded −0.00 would show its sign
        # judged as in the experiment's own section, so that the two cannot differ
        (verdict,) = judged(experiment, measured.results, [check])
        if slopes and verdict.held is not None:
            exponent = f"exponent {span(slopes, '{:.2f}', '')}"
            evidence.append(ClaimEvidence(says, exponent, paper, float(verdict.held), measured.seeds(), experiment.id))
    return evidence


def _saved(savings: Savings) -> list[ClaimEvidence]:
    """Return evidence of the savings over vanilla, in time and in operations, and that other clients do nothing."""
    lines, sent = savings.lines, f" (activations sent as {savings.codec})" if savings.codec else ""
    requester, everybody, last, whole = list[SeedSpread](), list[SeedSpread](), list[SeedSpread](), list[SeedSpread]()
    for line in savings.timed:
        requester.append(line.share_of_vanilla[0])
        everybody.append(line.share_of_all[0])
    for line in lines:
        last.append(line.flops_of_vanilla[0])
        whole.append(line.flops_of_vanilla[1])
    rows = [
        (f"Requester's time to forget{sent}", requester, REQUESTER, "97 to 99\xa0%"),
        (f"All clients' time to forget{sent}", everybody, ALL, "over 99\xa0%"),
    ]
    if not savings.codec:  # a codec changes bytes, and times with these, but no operations
        rows += [
            ("Requester's operations, one epoch of pre-training counted", last, REQUESTER, "97 to 99\xa0%"),
            ("Requester's operations, all epochs of pre-training counted", whole, REQUESTER, "97 to 99\xa0%"),
        ]
    evidence = []
    for says, shares, goal, paper in rows:
        saved = [100 - percent for percent in percents(shares)]
        less = f"{span(saved, '{:.2f}')} less than vanilla"
        reached = _reached(min(saved) / 100, goal)
        evidence.append(ClaimEvidence(says, less, paper, reached, seed_range(shares), savings.source))
    idle = all(map(_others_idle, lines))
    others = "nothing computed, nothing sent" if idle else "they worked too"
    seeds = seed_counts(line.seeds for line in lines)
    evidence.append(
        ClaimEvidence("Other clients while one forgets", others, "nothing", float(idle), seeds, savings.source)
    )
    return evidence


def _others_idle(line: SummaryRow) -> bool:
    return line.took_part[0] == 1 and not line.others_bytes.mean and not line.others_seconds.mean


def _reached(saved: float, goal: float) -> float:
    """Return 1 if the goal is saved (in whole percent, like the goal), 0.5 if at least nine tenths are, else 0."""
    if round(saved, 2) >= goal:  # the paper says whole percents
        return 1.0
    return 0.5 if saved >= 0.9 else 0.0


def _why(savings: Sequence[Savings]) -> str:
    best = min(savings, key=lambda one: bool(one.codec))  # prefer results without a codec
    line, epochs = best.timed[0], best.epochs
    time, one, every = percents([line.share_of_vanilla[0], *line.flops_of_vanilla])
    if one <= time:  # then computing is saved as time is, and nothing is to be explained
        return (
            f"The requester keeps {time:.1f}\xa0% of its time and {one:.0f}\xa0% of its operations with M = {epochs}."
        )
    return (
        f"The requester sends once, instead of M = {epochs} times there and back, which leaves {time:.1f}\xa0% of its "
        f"time. It also pre-trains again, which takes {one:.0f}\xa0% of vanilla's operations if one epoch of that is "
        f"counted, as the paper does, and {every:.0f}\xa0% if all are: computing falls less than time."
    )
