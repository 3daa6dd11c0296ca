"""Claim (c): clients' cost does not depend on the server's epochs, and is a small share of split learning's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from splitwiper_lab.evaluation.comparison import Record, SeedSpread, SummaryRow, summary
from splitwiper_lab.evaluation.reproduction import judged
from splitwiper_lab.evaluation.reproduction.growth import baselines, exponents, ours
from splitwiper_lab.evaluation.reproduction.outcomes import BANDWIDTH, quiet
from splitwiper_lab.pages.reproduction.claim import HOLDS, ClaimEvidence, PaperClaim, plain, records_of, seeds_of, span
from splitwiper_lab.pages.reproduction.collected import Collected, Measured

REQUESTER, ALL = 0.97, 0.99
"""The savings that the paper claims: at least this share of the requesting client's cost, and of all clients'."""


@dataclass(frozen=True)
class Source:
    """Results that savings are computed from.

    Attributes:
        records: all records, by condition.
        calm: those that ran alongside the fewest others, whose times are reliable.
        name: the experiment or file.
        codec: the codec of activations, if there is one.
    """

    records: Mapping[str, Sequence[Record]]
    calm: Mapping[str, Sequence[Record]]
    name: str
    codec: str


def _source(measured: Measured) -> Source:
    """Return an experiment's results with the largest M of each group, which the paper's savings are about."""
    last = {c.name for c in measured.experiment.conditions if c.x in (None, _most(measured, c.group))}
    records = {name: every for name, every in plain(measured, records_of(measured)).items() if name in last}
    calm = replace(measured, results=quiet(measured.results))
    return Source(records, plain(measured, records_of(calm)), measured.experiment.id, _codec(measured))


def cheaper(collected: Collected) -> PaperClaim:
    """Judge claim (c): clients' cost is constant in M, and 97 to 99 % lower."""
    found: list[ClaimEvidence] = []
    for measured in collected.of("time-epochs"):
        found += _growth(measured)
    sources = [_source(measured) for measured in collected.of("time-epochs", "effectiveness-")]
    if not collected.of("time-epochs") and collected.comparison:
        beside = collected.comparison
        codec = str(beside.about.get("codec", "none"))
        sources.append(Source({"": beside.records}, {}, beside.file, "" if codec == "none" else codec))
    told: list[tuple[bool, SummaryRow, int]] = []
    for source in sources:
        lines, timed = [], []
        for name, records in source.records.items():
            if line := _line(records):
                lines.append(line)
                timed.append(_line(source.calm.get(name, ())) or line)
        if lines:
            found += _saved(lines, timed, source.name, source.codec)
        epochs = next(iter(source.records.values()))[0].epochs["server"] if lines else 0
        told += [(bool(source.codec), line, epochs) for line in timed]
    claim = PaperClaim(
        "c",
        "Forgetting costs clients little",
        "What a client computes and sends does not depend on the server's epochs M. To forget, the requesting client "
        "spends about 1/M of what split learning takes, 97 to 99 % less, and all clients together over 99 % less.",
        tuple(found),
        "Savings are compared as whole percent; one of at least 90 % that is less than claimed counts half.",
    )
    why = _why(told) if found and claim.verdict != HOLDS else ""
    return replace(claim, why=why)


def _most(measured: Measured, group: str) -> float | None:
    """Return the largest M that was measured among a group of conditions."""
    there = {result.cell.condition for result in measured.results}
    return max(
        (c.x for c in measured.experiment.conditions if c.group == group and c.name in there and c.x), default=None
    )


def _codec(measured: Measured) -> str:
    codecs = {str(c.work.get("client", {}).get("codec", "none")) for c in measured.experiment.conditions}
    return ", ".join(sorted(codecs - {"none"}))


def _growth(measured: Measured) -> list[ClaimEvidence]:
    """Return evidence of how costs grow with M, from the experiment's own checks."""
    experiment = measured.experiment
    rows = (
        ("constant-in-epochs", "Growth of a client's work and traffic with M, SplitWiper", "constant", ours),
        ("linear-in-epochs", "Growth of a client's work and traffic with M, baselines", "linear", baselines),
    )
    out = []
    for check, says, paper, whose in rows:
        names = {system.name for system in whose(experiment)}
        slopes = []
        for what in ("learned.clients.flops", "learned.clients.sending"):
            for (_, system), (slope, points) in exponents(experiment, measured.results, what).items():
                if system in names and slope is not None and points > 1:
                    slopes.append(slope)
        (verdict,) = judged(experiment, measured.results, [check])
        if slopes and verdict.held is not None:
            told = f"exponent {span([round(slope, 2) + 0.0 for slope in slopes], '{:.2f}', '')}"
            out.append(ClaimEvidence(says, told, paper, float(verdict.held), measured.seeds(), experiment.id))
    return out


def _line(records: Sequence[Record]) -> SummaryRow | None:
    """Return SplitWiper without expansion, if there are results of vanilla split learning to compare with."""
    every = summary(records, bandwidth=BANDWIDTH) if records else []
    found = next((line for line in every if line.kind == "splitwiper"), None)
    return found if found and found.share_of_all[0].mean is not None else None


def _saved(lines: Sequence[SummaryRow], timed: Sequence[SummaryRow], source: str, codec: str) -> list[ClaimEvidence]:
    """Return evidence of the savings over vanilla, in time and in operations, and that other clients do nothing.

    Args:
        lines: results over all seeds.
        timed: results over the seeds with the fewest concurrent runs, if there are such.
        source: the experiment or file of the results.
        codec: the codec of activations.
    """
    sent = f" (activations sent as {codec})" if codec else ""
    rows = [
        (f"Requester's time to forget{sent}", [line.share_of_vanilla[0] for line in timed], REQUESTER, "97 to 99\xa0%"),
        (f"All clients' time to forget{sent}", [line.share_of_all[0] for line in timed], ALL, "over 99\xa0%"),
    ]
    if not codec:
        for place, what in enumerate(("one epoch of pre-training counted", "all epochs of pre-training counted")):
            shares = [line.flops_of_vanilla[place] for line in lines]
            rows.append((f"Requester's operations, {what}", shares, REQUESTER, "97 to 99\xa0%"))
    out = []
    for says, shares, goal, paper in rows:
        seeds = seeds_of([range(share.count) for share in shares])
        out.append(ClaimEvidence(says, _less(shares), paper, _reached(shares, goal), seeds, source))
    idle = all(line.took_part[0] == 1 and not line.others_bytes.mean and not line.others_seconds.mean for line in lines)
    told = "nothing computed, nothing sent" if idle else "they worked too"
    seeds = seeds_of([range(line.seeds) for line in lines])
    return [*out, ClaimEvidence("Other clients while one forgets", told, "nothing", float(idle), seeds, source)]


def _less(shares: Sequence[SeedSpread]) -> str:
    return f"{span([100 * (1 - (share.mean or 0.0)) for share in shares], '{:.2f}')} less than vanilla"


def _reached(shares: Sequence[SeedSpread], goal: float) -> float:
    """Return 1 if the goal is saved (in whole percent, like the goal), 0.5 if at least nine tenths are, else 0."""
    saved = min(1 - (share.mean or 0.0) for share in shares)
    return 1.0 if round(saved, 2) >= goal else 0.5 if saved >= 0.9 else 0.0


def _why(told: Sequence[tuple[bool, SummaryRow, int]]) -> str:
    if not told:
        return ""
    _, line, epochs = min(told, key=lambda one: one[0])  # prefer results without a codec
    time = 100 * (line.share_of_vanilla[0].mean or 0.0)
    one = 100 * (line.flops_of_vanilla[0].mean or 0.0)
    every = 100 * (line.flops_of_vanilla[1].mean or 0.0)
    return (
        f"The requester sends once, instead of M = {epochs} times there and back, which leaves {time:.1f}\xa0% of its "
        f"time. It also pre-trains again, which takes {one:.0f}\xa0% of vanilla's operations if one epoch of that is "
        f"counted, as the paper does, and {every:.0f}\xa0% if all are: computing falls less than time."
        if one > time
        else f"The requester keeps {time:.1f}\xa0% of its time and {one:.0f}\xa0% of its operations with M = {epochs}."
    )
