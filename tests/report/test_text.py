"""The verdict's wording for every outcome and every kind of request."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from splitwiper.checks import Outcome
from splitwiper.federation import Check, Verification
from splitwiper.report import Accuracy, ReportData, ReportedRequest, render
from splitwiper.report.text import OUTCOMES as TEXTS
from splitwiper.report.text import mark, verdict

OUTCOMES: dict[Outcome, tuple[str, ...]] = {
    "exact": ("Verified: exact", "forgot class ‘three’.", "bit for bit equal", "equals, bit for bit, that of a run"),
    "mismatch": (
        "Verification failed: mismatch",
        "does not pass verification",
        "the result is different",
        "Nothing about the forgetting",
    ),
    "not_comparable": (
        "not comparable here",
        "not proved here",
        "says nothing for or against",
        "this report adds no proof of it",
    ),
    "unverifiable": (
        "no longer possible",
        "can no longer be proved",
        "neither confirmed nor refuted",
        "it can no longer be proved by recomputing",
    ),
}


def verified(outcome: Outcome) -> Verification:
    return Verification((Check("Server half", outcome, "because so", "state"),))


def plain(text: str) -> str:
    return text.replace("\xa0", " ")


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_each_outcome_has_its_own_words_and_colour(report: ReportData, outcome: Outcome) -> None:
    told = replace(report, verification=verified(outcome))
    page = render(told)
    for words in OUTCOMES[outcome]:
        assert words in page
    assert f'class="verdict {outcome}"' in page
    assert ("The verification adds: because so" in page) is (outcome != "exact")


@pytest.mark.parametrize("outcome", [o for o in OUTCOMES if o != "exact"])
def test_only_exact_claims_equality(report: ReportData, outcome: Outcome) -> None:
    page = render(replace(report, verification=verified(outcome)))
    assert "bit for bit" not in page
    assert "forgot class" not in page


def test_outcomes_differ_without_colour() -> None:
    assert TEXTS.keys() == OUTCOMES.keys()
    for part in ("glyph", "short", "badge"):
        assert len({getattr(text, part) for text in TEXTS.values()}) == len(OUTCOMES)


def test_headline_figures(report: ReportData) -> None:
    said = verdict(report)
    assert said.headline == "Client ‘north’ forgot class ‘three’."
    assert plain(said.accuracy) == (
        "Accuracy on it fell from 98.9 % to 0.0 %; on everything else it rose from 97.1 % to 97.3 %. "
        "183 rows were removed."
    )
    assert said.notes == ()


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ReportedRequest("n", "class", ("a", "b"), 5), "forgot 2 classes: ‘a’ and ‘b’."),
        (ReportedRequest("n", "class", ("a", "b", "c", "d", "e", "f"), 5), "‘a’, ‘b’, ‘c’, ‘d’ and 2 more."),
        (ReportedRequest("n", "sample", (), 1), "forgot 1 row."),
        (ReportedRequest("n", "sample", ("a",), 1200), "forgot 1,200 rows of ‘a’."),
        (ReportedRequest("n", "client", (), 1200), "forgot everything it had contributed."),
        (ReportedRequest("n", "client", ("a",), 1200), "forgot everything it had contributed."),
    ],
)
def test_each_level(report: ReportData, request_: ReportedRequest, words: str) -> None:
    assert plain(verdict(replace(report, request=request_)).headline).endswith(words)


def test_a_label_others_hold_is_not_called_gone(report: ReportData) -> None:
    told = replace(report, request=ReportedRequest("north", "class", ("zero", "three"), 243))
    assert verdict(told).notes == (
        "‘south’, ‘west’ and ‘centre’ still hold rows of ‘zero’, so the model still knows it.",
    )
    assert mark(told, "zero") == "still held"
    assert mark(told, "three") == "forgotten"
    assert mark(told, "one") == ""


def test_samples_do_not_promise_a_fall(report: ReportData) -> None:
    told = replace(report, request=ReportedRequest("north", "sample", ("three",), 2))
    assert "Similar rows remain" in verdict(told).notes[0]
    assert mark(told, "three") == "some rows"
    assert "among those marked with an asterisk" in render(told)


def test_whole_client_marks_only_labels_nobody_else_holds(report: ReportData) -> None:
    told = replace(report, request=ReportedRequest("north", "client", (), 451))
    assert [label for label in told.labels if mark(told, label)] == ["three"]
    assert render(told).count("<del>") == len(told.clients[0].labels_before)


def test_unchanged_and_unmeasured_accuracy(report: ReportData) -> None:
    same = replace(report, after=report.before)
    assert "it stayed at 97.1 %" in plain(verdict(same).accuracy)
    none = replace(report, after=Accuracy(math.nan, 0.9, {}))
    assert "Accuracy on it was not measured; on everything else it fell" in plain(verdict(none).accuracy)
    blank = replace(report, after=Accuracy(math.nan, math.nan, {}))
    assert plain(verdict(blank).accuracy) == "Accuracy was not measured. 183 rows were removed."


def test_a_label_without_output_is_explained(report: ReportData) -> None:
    kept = {k: v for k, v in report.after.per_label.items() if k != "three"}
    told = replace(report, after=Accuracy(0.0, 0.973, kept))
    assert "the model no longer has an output for ‘three’" in render(told)
    assert "no longer has an output" not in render(report)
