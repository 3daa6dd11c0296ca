"""The report's sentences: what was requested, the outcome, and how far it is proved."""

from __future__ import annotations

import math
from dataclasses import dataclass

from splitwiper.formats import count, listed, percent, plural
from splitwiper.report.data import Outcome, ReportData, ReportedRequest

SHORT: dict[str, str] = {
    "exact": "Exact",
    "mismatch": "Mismatch",
    "not_comparable": "Not comparable",
    "unverifiable": "Unverifiable",
}
"""The outcomes as shown in tables."""

GLYPH: dict[str, str] = {"exact": "✓", "mismatch": "✕", "not_comparable": "–", "unverifiable": "?"}
"""Symbols beside the outcomes, so that colour is never the only difference."""

_BADGE: dict[Outcome, str] = {
    "exact": "Verified: exact",
    "mismatch": "Verification failed: mismatch",
    "not_comparable": "Not verified: not comparable here",
    "unverifiable": "Not verified: no longer possible",
}

_PROOF: dict[Outcome, str] = {
    "exact": (
        "Recomputed from scratch without the forgotten rows: bit for bit equal. "
        "What is stored now is the model that never saw them."
    ),
    "mismatch": (
        "Recomputed from scratch without the forgotten rows: the result is different. "
        "Treat the request as not fulfilled until the difference is explained."
    ),
    "not_comparable": (
        "The recomputation would run on other numerics (hardware, software or settings) than the original, so "
        "comparing bits says nothing for or against. Repeat it where the fingerprint is the same."
    ),
    "unverifiable": (
        "Something the recomputation needs no longer exists, for example a key that was destroyed. "
        "The result is neither confirmed nor refuted."
    ),
}


@dataclass(frozen=True)
class VerdictText:
    """The parts of the verdict."""

    badge: str
    headline: str
    accuracy: str
    proof: str
    notes: tuple[str, ...]


def verdict(story: ReportData) -> VerdictText:
    """Return the verdict: what a data-protection officer reads first."""
    outcome, request = story.verification.outcome, story.request
    who, what = f"‘{request.client}’", _object(request)
    headline = {
        "exact": f"Client {who} forgot {what}.",
        "mismatch": f"Client {who} asked to forget {what}. The result does not pass verification.",
        "not_comparable": f"Client {who} asked to forget {what}. It was carried out, but not proved here.",
        "unverifiable": f"Client {who} asked to forget {what}. It was carried out, but can no longer be proved.",
    }[outcome]
    notes = [note for note in (_still_known(story),) if note]
    if story.verification.reason:
        notes.append(f"The verification adds: {story.verification.reason}")
    return VerdictText(_BADGE[outcome], headline, _accuracy(story), _PROOF[outcome], tuple(notes))


def _object(request: ReportedRequest) -> str:
    if request.level == "client":
        return "everything it had contributed"
    if request.level == "sample" or not request.labels:
        return plural(request.rows, "row") + (f" of {listed(request.labels)}" if request.labels else "")
    if len(request.labels) == 1:
        return f"class ‘{request.labels[0]}’"
    return f"{count(len(request.labels))} classes: {listed(request.labels)}"


_UNMEASURED = "was not measured"


def _moved(before: float, after: float) -> str:
    if not (math.isfinite(before) and math.isfinite(after)):
        return _UNMEASURED
    old, new = percent(before), percent(after)
    if old == new:
        return f"stayed at {old}"
    return f"{'fell' if after < before else 'rose'} from {old} to {new}"


def _accuracy(story: ReportData) -> str:
    request = story.request
    if request.level == "class" and request.labels:
        on = "it" if len(request.labels) == 1 else "them"
    elif request.level == "sample" and request.rows == 1:
        on = "that row"
    else:
        on = "those rows"
    gone = _moved(story.before.forgotten, story.after.forgotten)
    kept = _moved(story.before.retained, story.after.retained)
    removed = f"{plural(request.rows, 'row')} {'was' if request.rows == 1 else 'were'}"
    if gone == kept == _UNMEASURED:
        return f"Accuracy was not measured. {removed} removed."
    return f"Accuracy on {on} {gone}; on everything else it {kept}. {removed} removed."


def _still_known(story: ReportData) -> str:
    """Explain why accuracy on the forgotten part need not be zero; empty if it should be."""
    level = story.request.level
    if level == "sample":
        return (
            "Similar rows remain, so the model may still answer correctly on the forgotten ones: "
            "it generalises, as a model that never saw them does."
        )
    kept = [label for label in story.asked_labels if story.keepers(label)]
    if not kept:
        return ""
    keepers = dict.fromkeys(name for label in kept for name in story.keepers(label))
    hold = "still holds" if len(keepers) == 1 else "still hold"
    them = "it" if len(kept) == 1 else "them"
    return f"{listed(tuple(keepers))} {hold} rows of {listed(kept)}, so the model still knows {them}."


def mark(story: ReportData, label: str) -> str:
    """Return the short remark at a label that the request concerns; empty for all others."""
    if label not in story.asked_labels:
        return ""
    if story.request.level == "sample":
        return "some rows"
    if not story.keepers(label):
        return "forgotten"
    return "still held" if story.request.level == "class" else ""


_DELETED = (
    "Unlearning deletes from the run’s folder the files that held the forgotten rows or were computed from them; "
    "section 6 lists what is left."
)
_REPEAT = (
    "Whoever holds the run’s folder, the clients’ parts included, can repeat the verification "
    "where the fingerprint is the same."
)

GUARANTEED: dict[Outcome, tuple[str, ...]] = {
    "exact": (
        "The stored state equals, bit for bit, that of a run which never had the forgotten rows.",
        _DELETED,
        _REPEAT,
    ),
    "mismatch": ("Nothing about the forgetting, as long as the verification fails.",),
    "not_comparable": (
        "Exactness by construction only: this report adds no proof of it.",
        _DELETED,
        _REPEAT,
    ),
    "unverifiable": (
        "Exactness by construction only: it can no longer be proved by recomputing.",
        _DELETED,
    ),
}
"""Conclusions that may be drawn, by outcome."""

NOT_GUARANTEED = (
    "Exactness is relative to a context: configuration, initial weights, keys and the fingerprint of the numerics. "
    "In another context the bits may differ.",
    "The server sees every client’s activations and, in plain SplitWiper, the labels too. "
    "Forgetting does not undo what it has already seen.",
    "Copies, backups and exported models outside the store are out of reach.",
    "Deleted files may survive on the medium until they are overwritten.",
    "This page names what was forgotten. Keep it, or delete it, accordingly.",
)
"""Conclusions that must not be drawn from the report."""
