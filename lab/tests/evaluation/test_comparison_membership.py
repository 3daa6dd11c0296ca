"""What membership inference finds in each system of a comparison."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from evaluation.small import ATTACKED, EXACT, Found, compare, settings, small
from splitwiper.errors import ConfigError
from splitwiper.wire import Label
from splitwiper_lab.attacks.membership import Sample
from splitwiper_lab.baselines import Problem
from splitwiper_lab.evaluation.comparison import (
    exposures,
    stage,
)
from splitwiper_lab.evaluation.comparison import membership as inferring


@pytest.fixture(scope="module", autouse=True)
def _few_trees_and_queries() -> Iterator[None]:
    """Attacks that are quick, and no worse for what is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("splitwiper_lab.attacks.membership.classifier"), "_TREES", 10)
        patch.setattr(import_module("splitwiper_lab.attacks.membership.label_only"), "REPEATS", 2)
        yield


@pytest.fixture(scope="module", params=["class", "sample"])
def attacked(request: pytest.FixtureRequest) -> Found:
    return compare(small(300), settings(f'level = "{request.param}"\n{ATTACKED}'))


def test_every_system_meets_every_attack(attacked: Found) -> None:
    assert set(attacked) == EXACT | {("vanilla", "fine-tuning")}
    for record in attacked.values():
        outcomes = record.membership
        assert [o["attack"] for o in outcomes] == ["two models", "labels only", "loss before", "loss after"]
        for o in outcomes:
            assert (o["labels"], o["tasks"]) == ("full", "same")
            assert 0 <= o["hit_rate"] <= 1 and 0 <= o["false_positive_rate"] <= 1
            assert 0 <= o["interval"][0] <= o["auc"] <= o["interval"][1] <= 1
            assert o["unlearned"] > 2 and o["outsiders"] > 2
            assert (o["comparison"] is None) == (o["attack"] == "loss before")
    candidates = {(o["unlearned"], o["outsiders"]) for record in attacked.values() for o in record.membership}
    assert len(candidates) == 1  # the same for all


def test_what_is_exact_equals_a_retrained_model(attacked: Found) -> None:
    for key in EXACT:
        for beside in (o["comparison"] for o in attacked[key].membership if o["comparison"]):
            assert (beside["verdict"], beside["difference"], beside["interval"]) == ("equal", 0, [0, 0])
            assert beside["auc"] == beside["reference_auc"]
    tuned = [o["comparison"] for o in attacked["vanilla", "fine-tuning"].membership if o["comparison"]]
    assert any(beside["difference"] != 0 for beside in tuned)


def test_exposures_are_told_for_each_system_and_attack(attacked: Found) -> None:
    told = exposures(list(attacked.values()))
    assert len(told) == 4 * len(attacked) == len({(e.system, e.unlearning, e.attack) for e in told})
    for e in told:
        assert e.knows == "full labels, same tasks"
        assert e.auc.mean is not None and e.interval[0] <= e.auc.mean <= e.interval[1]
        assert (e.verdict == "not compared") == (e.difference is None) == (e.attack == "loss before")
    twice = exposures([r for record in attacked.values() for r in (record, dataclasses.replace(record, seed=1))])
    assert len(twice) == len(told) and all(e.auc.count == 2 and e.auc.deviation == 0 for e in twice)
    assert {e.verdict for e in twice if e.system == "splitwiper"} == {"equal 2×", "not compared"}


def test_the_attackers_rows_are_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    own: list[Sample] = []

    def seen(rows: Sample, *_args: Any, **_named: Any) -> list[Any]:
        own.append(rows)
        return []

    monkeypatch.setattr(inferring, "shadow_pairs", seen)
    monkeypatch.setattr(inferring, "Judges", lambda *_args, **_named: None)
    work, comparison = small(300), settings(ATTACKED)
    at = stage(work, comparison)
    mine = set(own[0].digests)
    learned = {digest for held in at.problem.clients.values() for digest in _digests(held)}
    tested = {digest for images, labels in work.test.values() for digest in Sample(images, _none(labels)).digests}
    assert len(mine) == len(own[0]) and not mine & learned and not mine & tested
    assert len(mine) + len(learned) == 300
    for name, (_, labels) in work.train.items():
        assert len(at.problem.clients[name]) == len(labels) - round(0.4 * len(labels))
        assert set(at.problem.clients[name].labels) == set(Problem.of_workload(work).clients[name].labels)


def _digests(held: Any) -> tuple[bytes, ...]:
    return Sample(np.asarray(held.shard.columns[held.names[0]]), _none(held.shard.codes)).digests


def _none(labels: Any) -> list[Label]:
    return [Label("", "any")] * len(labels)


def test_an_attacker_who_knows_some_labels_is_said_to() -> None:
    text = 'level = "sample"\nmembership = {shadow = 0.4, shadows = 2, labels = 0.5}\nsystems = ["splitwiper"]'
    (record,) = compare(small(300), settings(text)).values()
    assert [o["labels"] for o in record.membership] == ["partial"] * 4
    assert all(o["comparison"]["difference"] == 0 for o in record.membership if o["comparison"])


def test_a_client_that_leaves_cannot_be_asked() -> None:
    with pytest.raises(ConfigError, match="has no model to ask; take class or sample"):
        stage(small(), settings(f'level = "client"\n{ATTACKED}'))


def test_without_membership_nothing_is_withheld_or_attacked(found: Found) -> None:
    comparison = settings("membership = {shadow = 0}")
    at = stage(small(), comparison)
    assert at.attacker is None and sum(map(len, at.problem.clients.values())) == 150
    assert all(record.membership == () for record in found.values())
