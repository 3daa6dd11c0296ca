"""Attacks that group codes: each succeeds where it should, and says little where it cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from splitwiper_lab.attacks import AttackResult, Evidence, ServerView, Truth, measure
from splitwiper_lab.attacks.code_groups import (
    birch_means,
    confusion,
    counts,
    equal_counts,
    feature_means,
    head_rows,
    kmeans_means,
    like_counts,
    merged_means,
    row_matching,
)
from splitwiper_lab.attacks.suite import ON_CODES

Known = tuple[ServerView, Truth]


def results(attack: Callable[..., Any], known: Known, **told: Any) -> list[AttackResult]:
    view, truth = known
    return [measure(finding, truth, view) for finding in attack(Evidence(view, quick=True), **told)]


def named(found: list[AttackResult]) -> dict[str, AttackResult]:
    return {result.attack: result for result in found}


@pytest.mark.parametrize("attack", ON_CODES, ids=lambda a: a.__name__)
@pytest.mark.parametrize("told", [{}, {"labels": 10}], ids=["knowing nothing", "knowing Q"])
def test_copied_rows_give_every_group_away(attack: Callable[..., Any], told: dict[str, int], duplicate: Known) -> None:
    for result in results(attack, duplicate, **told):
        assert result.perfect == result.inclusive == result.pair_f1 == result.sample_recovery == 1.0, result
        assert result.knows == ("Q" if told else "")
        assert (result.labels_estimated, result.labels_error) == ((None, None) if told else (10, 0))


@pytest.mark.parametrize("attack", [merged_means, birch_means, kmeans_means, feature_means, confusion, head_rows])
def test_rows_dealt_out_at_random_hide_nothing(attack: Callable[..., Any], partition: Known) -> None:
    for result in results(attack, partition, labels=10):
        assert result.perfect is not None and result.perfect >= 0.9, result


def test_noise_does_not_help_against_means_and_matching(noisy: Known) -> None:
    assert results(merged_means, noisy, labels=10)[0].perfect == 1.0
    assert results(merged_means, noisy)[0].labels_error == 0
    (matched,) = results(row_matching, noisy, labels=10)
    assert matched.pair_f1 is not None and matched.pair_f1 > 0.6


def test_matching_tells_copies_from_neighbours(duplicate: Known, partition: Known) -> None:
    assert results(row_matching, duplicate)[0].notes.startswith("100.0\xa0% of rows have a copy")
    assert results(row_matching, partition)[0].notes.startswith("0.0\xa0% of rows have a copy")


def test_equal_counts_need_no_activations(duplicate: Known, partition: Known) -> None:
    assert named(results(equal_counts, duplicate))["equal row counts"].perfect == 1.0
    dealt = named(results(equal_counts, partition))["equal row counts"]
    assert dealt.perfect == 0.0 and dealt.pair_f1 is not None and dealt.pair_f1 < 0.2


def test_same_clients_tell_codes_apart_when_one_client_alone_has_a_label(duplicate: Known) -> None:
    view, truth = duplicate
    assert named(results(equal_counts, duplicate))["same clients"].labels_estimated == 1
    held = {seen.client: set(np.unique(truth.rows[seen.place]).tolist()) for seen in view.present}
    assert all(len(labels) == 10 for labels in held.values())


def test_counts_of_erased_uploads_count_too(duplicate: Known) -> None:
    view, _ = duplicate
    older = replace(view, uploads=(view.uploads[0], *(replace(seen, generation=2) for seen in view.uploads)))
    assert counts(Evidence(older)).shape == (30, 4)


def test_like_counts_of_one_client_say_little(duplicate: Known) -> None:
    view, truth = duplicate
    single = replace(view, uploads=view.uploads[:1], half=None)
    found = named(results(equal_counts, (single, truth)))
    assert "single upload" in found["equal row counts"].notes
    (like,) = results(like_counts, (single, truth))
    assert like.perfect is not None and like.perfect <= 1.0


@pytest.mark.parametrize("attack", [*ON_CODES, equal_counts], ids=lambda a: a.__name__)
def test_a_single_code_leaves_nothing_to_group(attack: Callable[..., Any], one: Known) -> None:
    for result in results(attack, one):
        assert result.perfect is None and result.sample_recovery is None and result.labels_estimated is None
        assert "fewer than two codes" in result.notes or "no trained half" in result.notes


@pytest.mark.parametrize("attack", [feature_means, confusion, head_rows], ids=lambda a: a.__name__)
def test_without_a_half_its_attacks_say_so(attack: Callable[..., Any], duplicate: Known) -> None:
    view, truth = duplicate
    (result,) = results(attack, (replace(view, half=None, labels=()), truth))
    assert result.strength < 0 and "no trained half" in result.notes


def test_codes_shared_by_labels_cannot_be_right(keyed: Known) -> None:
    for attack in (merged_means, partial(feature_means), confusion):
        for result in results(attack, keyed, labels=10):
            assert result.perfect is None and result.inclusive is None and result.pair_f1 is None
            assert result.sample_recovery is not None and 0.2 < result.sample_recovery < 0.9


def test_plain_labels_are_all_found(unmasked: Known) -> None:
    for attack in ON_CODES:
        for result in results(attack, unmasked, labels=10):
            assert result.perfect == result.sample_recovery == 1.0, result
            assert result.pair_f1 is None  # no two codes belong together
