"""The report's sentences: the request, its outcome, and how far that is proved."""

from __future__ import annotations

import math
from dataclasses import dataclass

from splitwiper.checks import Outcome
from splitwiper.formats import NONE, count, listed, percent, plural, seconds, size
from splitwiper.report.data import ReportData, ReportedRequest
from splitwiper.wire import Spent


@dataclass(frozen=True)
class OutcomeText:
    """The words for an outcome. Symbols differ too, so that colour is never the only difference."""

    short: str
    glyph: str
    badge: str
    headline: str
    proof: str


OUTCOMES: dict[Outcome, OutcomeText] = {
    "exact": OutcomeText(
        "Exact",
        "✓",
        "Verified: exact",
        "Client {who} forgot {what}.",
        "Recomputed from scratch without the forgotten rows: bit for bit equal. "
        "What is stored now is the model that never saw them.",
    ),
    "mismatch": OutcomeText(
        "Mismatch",
        "✕",
        "Verification failed: mismatch",
        "Client {who} asked to forget {what}. The result does not pass verification.",
        "Recomputed from scratch without the forgotten rows: the result is different. "
        "Treat the request as not fulfilled until the difference is explained.",
    ),
    "not_comparable": OutcomeText(
        "Not comparable",
        "–",
        "Not verified: not comparable here",
        "Client {who} asked to forget {what}. It was carried out, but not proved here.",
        "The recomputation would run on other numerics (hardware, software or settings) than the original, so "
        "comparing bits says nothing for or against. Repeat it where the fingerprint is the same.",
    ),
    "unverifiable": OutcomeText(
        "Unverifiable",
        "?",
        "Not verified: no longer possible",
        "Client {who} asked to forget {what}. It was carried out, but can no longer be proved.",
        "Something the recomputation needs no longer exists, for example a key that was destroyed. "
        "The result is neither confirmed nor refuted.",
    ),
}
"""The text of every outcome."""


@dataclass(frozen=True)
class VerdictText:
    """The parts of the verdict that depend on the request."""

    headline: str
    accuracy: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Tile:
    """One of the key figures."""

    name: str
    value: str
    note: str


def verdict(report: ReportData) -> VerdictText:
    """Return the verdict: what a data-protection officer reads first."""
    request = report.request
    headline = OUTCOMES[report.verification.outcome].headline
    # names are replaced in one step, so that a client called "{what}" stays what it is
    headline = headline.format(who=f"‘{request.client}’", what=_what_was_forgotten(request))
    notes = []
    if still_known := _still_known(report):
        notes.append(still_known)
    if not report.verification.exact:
        notes.append(f"The verification adds: {report.verification.reason}")
    return VerdictText(headline, _accuracy(report), tuple(notes))


def key_figures(report: ReportData) -> tuple[Tile, ...]:
    """Return the four key figures."""
    own = report.requester.unlearn.seconds if report.requester else 0.0
    server = report.server.unlearn_seconds
    learned = report.server.learn_seconds + sum(client.learn.seconds for client in report.clients)
    change = 100 * (report.after.retained - report.before.retained)  # not finite where nothing was measured
    points = f" {change:+.1f}\xa0points.".replace("-", "−") if math.isfinite(change) else ""
    spent, note = _spent_by_others(report)
    return (
        Tile(
            "Accuracy, forgotten part",
            percent(report.after.forgotten),
            f"Before: {percent(report.before.forgotten)}.",
        ),
        Tile(
            "Accuracy, everything else",
            percent(report.after.retained),
            f"Before: {percent(report.before.retained)}.{points}",
        ),
        Tile("Work for all other clients", spent, note),
        Tile(
            "Time to forget",
            seconds(own + server),
            f"Client {seconds(own)}, server {seconds(server)}. Learning took {seconds(learned)} in all.",
        ),
    )


def work_of_others(report: ReportData) -> str:
    """Return a sentence on what the unlearning cost the clients that had not asked for it."""
    others = len(report.others)
    idle = sum(client.unlearn == Spent() for client in report.others)
    if not others:
        return "There was only one client: forgetting was work for it and the server."
    if idle == others:
        return f"Forgetting was work for one client and the server. It cost {_the_others(others)} exactly nothing."
    return f"Of {plural(others, 'other client')}, {count(idle)} had no work with the unlearning."


def mark(report: ReportData, label: str) -> str:
    """Return the short remark at a label that the request concerns; empty for all others."""
    if label not in report.asked_labels:
        return ""
    if report.request.level == "sample":
        return "some rows"
    if not report.keepers(label):
        return "forgotten"
    return "still held" if report.request.level == "class" else ""


_UNMEASURED = "was not measured"


def _what_was_forgotten(request: ReportedRequest) -> str:
    if request.level == "client":
        return "everything it had contributed"
    if request.level == "sample" or not request.labels:
        return plural(request.rows, "row") + (f" of {listed(request.labels)}" if request.labels else "")
    if len(request.labels) == 1:
        return f"class ‘{request.labels[0]}’"
    return f"{count(len(request.labels))} classes: {listed(request.labels)}"


def _accuracy(report: ReportData) -> str:
    request = report.request
    if request.level == "class" and request.labels:
        on = "it" if len(request.labels) == 1 else "them"
    elif request.level == "sample" and request.rows == 1:
        on = "that row"
    else:
        on = "those rows"
    gone = _change(report.before.forgotten, report.after.forgotten)
    kept = _change(report.before.retained, report.after.retained)
    removed = f"{plural(request.rows, 'row')} {'was' if request.rows == 1 else 'were'}"
    if gone == kept == _UNMEASURED:
        return f"Accuracy was not measured. {removed} removed."
    return f"Accuracy on {on} {gone}; on everything else it {kept}. {removed} removed."


def _change(before: float, after: float) -> str:
    if not (math.isfinite(before) and math.isfinite(after)):
        return _UNMEASURED
    old, new = percent(before), percent(after)
    if old == new:  # as they are shown: a difference that nobody can see would read as a mistake
        return f"stayed at {old}"
    return f"{'fell' if after < before else 'rose'} from {old} to {new}"


def _still_known(report: ReportData) -> str:
    """Explain why accuracy on the forgotten part need not be zero; empty if it should be."""
    if report.request.level == "sample":
        return (
            "Similar rows remain, so the model may still answer correctly on the forgotten ones: "
            "it generalises, as a model that never saw them does."
        )
    kept, keepers = [], {}  # labels, and the clients that hold them: each once, in order
    for label in report.asked_labels:
        if names := report.keepers(label):
            kept.append(label)
            keepers.update(dict.fromkeys(names))
    if not kept:
        return ""
    hold = "still holds" if len(keepers) == 1 else "still hold"
    them = "it" if len(kept) == 1 else "them"
    return f"{listed(tuple(keepers))} {hold} rows of {listed(kept)}, so the model still knows {them}."


def _spent_by_others(report: ReportData) -> tuple[str, str]:
    """Return what the unlearning cost the other clients, and a remark."""
    if not report.others:
        return NONE, "There were no other clients."
    them = _the_others(len(report.others))
    work = sum((client.unlearn for client in report.others), Spent())
    if work == Spent():
        return "0", f"No seconds and no bytes for {them}."
    return seconds(work.seconds), f"And {size(work.traffic)} exchanged by {them}."


def _the_others(others: int) -> str:
    return "the other client" if others == 1 else f"the other {plural(others, 'client')}"
