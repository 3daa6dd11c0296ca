"""Membership inference against unlearning: attacks find what is there, and nothing where there is nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from attacks.shadowed import (
    class_unlearning,
    digits,
    made,
    misled,
    recall,
    some,
    texts,
    train,
    tumours,
    unlearning,
)
from splitwiper.errors import DataError
from splitwiper.wire import Label
from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.membership import (
    Judges,
    Knowledge,
    MembershipClaim,
    Model,
    ModelPair,
    Outcome,
    Sample,
    against,
    label_only,
    loss,
    measure,
    refuse_overlap,
    shadow_pairs,
    two_model,
)
from splitwiper_lab.attacks.membership.label_only import LEVELS, REPEATS, SHARES, perturbed
from splitwiper_lab.attacks.membership.label_only import features as firmness
from splitwiper_lab.attacks.membership.loss import difficulty, losses, threshold
from splitwiper_lab.attacks.membership.roc import Z, auc, auc_interval, placements, standard_error, tpr_at
from splitwiper_lab.attacks.membership.two_model import features

Judge = Callable[[ModelPair], MembershipClaim]
FULL = Knowledge("full", "same")
ATTACKS = ["two models", "labels only", "loss before", "loss after"]


@pytest.fixture(scope="module")
def rows() -> Sample:
    return digits()


@pytest.fixture(scope="module")
def target(rows: Sample) -> ModelPair:
    return unlearning(rows)


@pytest.fixture(scope="module")
def shadows(rows: Sample) -> list[ModelPair]:
    return shadow_pairs(some(rows, 600, 1200), train, share=0.3)


@pytest.fixture(scope="module")
def judges(shadows: list[ModelPair]) -> dict[str, Judge]:
    made = [two_model(shadows), label_only(shadows), loss(shadows, when="before"), loss(shadows, when="after")]
    return dict(zip(ATTACKS, made, strict=True))


def found(outcome: Outcome) -> bool:
    """An attack clearly works: better than guessing, by its area and at its own threshold."""
    return outcome.interval[0] > 0.6 and outcome.hit_rate > outcome.false_positive_rate + 0.25


# --- attacks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", ATTACKS)
def test_rows_known_by_heart_are_found(attack: str, judges: dict[str, Judge], target: ModelPair) -> None:
    if attack == "loss after":  # finds what an unlearning left: here, everything
        target = replace(target, after=target.before)
    outcome = measure(judges[attack](target), target, FULL)
    assert found(outcome) and outcome.attack == attack
    assert 0 < outcome.tpr_at[0.01] <= outcome.tpr_at[0.1] < 1


@pytest.mark.parametrize("attack", ATTACKS)
def test_rows_never_trained_on_are_not_found(attack: str, judges: dict[str, Judge], rows: Sample) -> None:
    one, other = some(rows, 1300, 1450), some(rows, 1450, 1600)
    models = made(some(rows, 0, 300)), made(some(rows, 60, 300))
    outcome = measure(judges[attack](ModelPair(*models, one, other)), ModelPair(*models, one, other), FULL)
    assert outcome.interval[0] < 0.5 < outcome.interval[1]
    assert outcome.hit_rate == pytest.approx(outcome.false_positive_rate, abs=0.1)


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_unlearning_is_compared_with_training_without_the_rows(
    attack: str, judges: dict[str, Judge], target: ModelPair
) -> None:
    never = measure(judges[attack](target), target, FULL)

    def verdict(after: Model) -> str:
        pair = replace(target, after=after)
        return against(measure(judges[attack](pair), pair, FULL), never).verdict

    assert verdict(target.after) == "equal"
    assert target.retained is not None
    others = [verdict(made(target.retained, seed=seed)) for seed in range(5, 10)]  # another training is another model:
    assert sum(other in ("equal", "undecided") for other in others) >= 3  # intervals do not cover its luck
    nothing_done, too_much = {
        "two models": ("less", "more"),  # what does not change is not seen, what changes more is
        "labels only": ("less", "more"),
        "loss before": ("equal", "equal"),  # never looks at the model after
        "loss after": ("more", "less"),
    }[attack]
    assert verdict(target.before) == nothing_done
    assert verdict(misled(target)) == too_much


def test_all_attacks_at_once_repeat_and_are_compared(rows: Sample, target: ModelPair) -> None:
    shadows = shadow_pairs(some(rows, 600, 800), train, count=2, share=0.3)
    once, twice = (Judges(shadows, seed=3)(target, reference=target.before) for _ in range(2))
    assert [o.attack for o in once] == ATTACKS
    assert once == twice and all((a.scores == b.scores).all() for a, b in zip(once, twice, strict=True))
    assert [o.comparison is not None for o in once] == [True, True, False, True]
    last = once[3].comparison  # with a model that was trained on the rows
    assert last is not None and (last.auc, last.reference_auc) == (once[3].auc, once[2].auc) and last.verdict == "less"
    assert all((o.unlearned, o.outsiders, o.labels_gone, o.knowledge) == (100, 250, 0, FULL) for o in once)
    text = json.loads(json.dumps([o.to_dict() for o in once]))
    assert text[3]["comparison"]["verdict"] == "less" and set(text[0]["tpr_at"]) == {"0.01", "0.1"}
    other = label_only(shadows, seed=4)(target)
    assert (other.scores != once[1].scores).any()


def test_a_forgotten_class_has_no_output(rows: Sample) -> None:
    three = Label("digits", 3)
    target = class_unlearning(rows, three)
    shadows = shadow_pairs(some(rows, 600, 1400), train, count=2, forget="class", labels=[three])
    assert all(len(shadow.after.labels) == 9 and set(shadow.candidates.labels) == {three} for shadow in shadows)
    both, only, before, after = Judges(shadows)(target, reference=target.after)
    assert all(o.comparison is not None and o.comparison.verdict == "equal" for o in (both, only, after))
    assert both.labels_gone == only.labels_gone == after.labels_gone == len(target.truth)
    assert before.labels_gone == 0 and before.comparison is None
    # no model but the one before knows the label: it alone gives members away, whatever became of it
    assert before.interval[0] > 0.5 and both.interval[0] > 0.5
    assert losses(target.after, target.candidates) == pytest.approx(-np.log(1e-12))


def test_a_single_shadow_will_do(rows: Sample, target: ModelPair) -> None:
    one = shadow_pairs(some(rows, 600, 900), train, count=1, forget="part", share=0.6, labels=[Label("digits", 1)])
    assert measure(two_model(one)(target), target, FULL).auc > 0.65
    gone = shadow_pairs(some(rows, 600, 900), train, count=1, forget="class", labels=[Label("digits", 1)])
    claim = loss(gone, when="before")(target)
    assert claim.notes.startswith("0%") and (claim.scores == -losses(target.before, target.candidates)).all()


def test_some_labels_are_enough(rows: Sample, target: ModelPair) -> None:
    shadows = shadow_pairs(some(rows, 600, 1200, only=range(6)), train, count=2, share=0.3)
    outcomes = Judges(shadows)(target)
    assert {(o.knowledge.labels, o.knowledge.tasks) for o in outcomes} == {("partial", "same")}
    assert len(shadows[0].before.labels) == 6 and found(outcomes[0]) and outcomes[1].interval[0] > 0.6
    unknown = sum(label.name in range(6, 10) for label in target.candidates.labels)
    assert f"the usual one for {unknown} rows" in outcomes[3].notes


def test_another_task_is_enough(rows: Sample, target: ModelPair) -> None:
    strange = shadow_pairs(some(tumours(), 0, 300), train, count=2, share=0.3)
    mixed = [*strange, *shadow_pairs(some(rows, 600, 1200, only=range(5)), train, count=2, share=0.3)]
    outcomes = Judges(mixed)(target)
    assert {(o.knowledge.labels, o.knowledge.tasks) for o in outcomes} == {("partial", "mixed")}
    assert len(strange[0].before.labels) == 2 and outcomes[0].interval[0] > 0.6
    lone = measure(two_model(strange)(target), target, Knowledge.of(target, strange))
    assert lone.knowledge == Knowledge("partial", "mixed") and lone.interval[0] > 0.5


def test_texts_are_attacked_by_replacing_tokens() -> None:
    rows = texts()
    members, left = some(rows, 0, 100), some(rows, 40, 100)
    models = (Model(*recall(part.inputs, part.labels, 0)) for part in (members, left))
    target = ModelPair(*models, some(rows, 0, 40), some(rows, 100, 150), left)
    outcome = measure(label_only(shadow_pairs(some(rows, 200, 400), recall, share=0.4))(target), target, FULL)
    assert found(outcome) and outcome.auc > 0.85


# --- parts of attacks ----------------------------------------------------------------------------------------


def test_features_do_not_depend_on_the_order_of_outputs(target: ModelPair) -> None:
    def turned(model: Model) -> Model:
        return Model(lambda asked: model.answers(asked)[:, ::-1], model.labels[::-1])

    other = replace(target, after=turned(target.after))
    assert features(other) == pytest.approx(features(target))
    tied = Model(lambda asked: np.tile([0.5, 0.25, 0.25], (len(asked), 1)), [Label("digits", n) for n in (1, 2, 3)])
    both = replace(target, before=tied, after=turned(target.after))
    assert features(replace(both, before=turned(tied))) == pytest.approx(features(both))


def test_features_of_a_known_case() -> None:
    a, b, c = (Label("", name) for name in "abc")
    before = Model(lambda x: np.tile([0.2, 0.7, 0.1], (len(x), 1)), [a, b, c])
    after = Model(lambda x: np.tile([1.0], (len(x), 1)), [c])
    one, other = Sample(np.zeros((1, 1)), [b]), Sample(np.ones((1, 1)), [c])
    got = features(ModelPair(before, after, one, other))
    top, then, last = [0.7, 0.2, 0.1], [0, 0, 1], [1, 0, 0]
    entropy = -(0.2 * np.log(0.2) + 0.7 * np.log(0.7) + 0.1 * np.log(0.1)) / np.log(3)
    shared = [*top, *then, 0.7, 0.2, -0.9, *last, np.sqrt(0.04 + 0.49 + 0.81), entropy, 0]
    gone = -np.log(1e-12)
    assert got[0] == pytest.approx([*shared, 0.7, 0, 0.7, -np.log(0.7), gone, gone + np.log(0.7)])
    assert got[1] == pytest.approx([*shared, 0.1, 1, -0.9, -np.log(0.1), 0, np.log(0.1)])


def test_noise_keeps_what_inputs_are() -> None:
    draw = np.random.default_rng(1)
    ids = draw.integers(5, 50, (40, 30))
    inputs = {
        "ids": ids,
        "mask": np.tile([1, 0, 1], (40, 10)),
        "picture": draw.integers(0, 256, (40, 50), dtype=np.uint8),
        "x": draw.normal(0, 3, (40, 50)).astype(np.float16),
    }
    rows = Sample(inputs, [Label("", 0)] * 40)
    made = list(perturbed(rows, seed=0))
    assert [level for level, _ in made] == [level for level in range(len(LEVELS)) for _ in range(REPEATS)]
    for level, noisy in made:
        columns = noisy.columns
        assert all(columns[name].dtype == array.dtype for name, array in inputs.items())
        assert (columns["mask"] == inputs["mask"]).all() and np.isin(columns["ids"], ids).all()
        assert (columns["ids"] != ids).mean() == pytest.approx(SHARES[level], abs=0.06)
        moved = columns["picture"].astype(float) - inputs["picture"]
        assert 0 < np.abs(moved).max() < 6 * LEVELS[level] * inputs["picture"].std()  # bytes do not wrap around
        assert (columns["x"] - inputs["x"]).astype(float).std() == pytest.approx(3 * LEVELS[level], rel=0.1)
    assert not np.array_equal(made[0][1].columns["x"], made[1][1].columns["x"])
    again = next(perturbed(rows, seed=0))[1].columns
    assert all(np.array_equal(again[name], made[0][1].columns[name]) for name in inputs)
    bits = Sample(np.tile([0, 1], (50, 40)), [Label("", 0)] * 50)  # nothing but what could be a mask: then it is none
    for level, noisy in perturbed(bits, seed=0):
        assert (noisy.columns[""] != bits.columns[""]).mean() == pytest.approx(SHARES[level], abs=0.04)


def test_labels_only_sees_both_models(target: ModelPair) -> None:
    lost = Model(lambda asked: np.ones((len(asked), 1)), [Label("digits", "none")])
    got = firmness(replace(target, after=lost), seed=0)
    right, _, before, after, change = np.split(got, [1, 2, 2 + len(LEVELS), 2 + 2 * len(LEVELS)], axis=1)
    assert right.mean() > 0.7 and not got[:, 1].any() and not after.any() and (change == before).all()
    assert (np.diff(before.mean(0)) < 0).all()  # more noise, fewer answers that hold
    assert not firmness(replace(target, before=lost), seed=0)[:, 2 : 2 + len(LEVELS)].any()


def test_difficulty_comes_from_models_that_never_saw_the_row(shadows: list[ModelPair]) -> None:
    first = shadows[0]
    rows = first.unlearned.take(np.arange(3))
    unaware = [m for s in shadows for m, trained_on in s.models if rows.digests[0] not in trained_on]
    assert first.before not in unaware and first.after in unaware and len(unaware) > 2
    expected = np.mean([losses(model, rows)[0] for model in unaware])
    assert difficulty(rows, shadows)[0] == pytest.approx(expected)
    assert np.isnan(difficulty(Sample(rows.inputs, [Label("digits", 11)] * 3), shadows)).all()


def test_the_threshold_balances_both_kinds() -> None:
    truth = np.array([True] * 2 + [False] * 8)
    scores = np.array([3.0, 1.0, 2.0, 0, 0, 0, 0, 0, 0, 0])
    assert threshold(scores, truth) == 0.5  # all hits for one alarm of eight
    assert threshold(np.zeros(10), truth) in (0.0, 1.0)


def test_shadows_are_drawn_as_asked(rows: Sample, shadows: list[ModelPair]) -> None:
    own = some(rows, 600, 1200)
    for shadow in shadows:
        assert shadow.retained is not None
        kinds = [set(part.digests) for part in (shadow.unlearned, shadow.outsiders, shadow.retained)]
        assert sum(map(len, kinds)) == len(set.union(*kinds)) == 600 and shadow.rows == set(own.digests)
        assert len(kinds[0]) == round(0.3 * (len(kinds[0]) + len(kinds[2])))
    assert shadows[0].trained.isdisjoint(shadows[1].trained) and shadows[0].trained != shadows[2].trained
    part = shadow_pairs(own, _guess, count=3, forget="part", share=0.5, seed=1)
    labels = [set(shadow.candidates.labels) for shadow in part]
    assert all(len(held) == 1 for held in labels) and len(set.union(*labels)) == 3
    assert all(x in shadow.after.labels for shadow in part for x in shadow.unlearned.labels)
    twice = Sample(np.concatenate([own.columns[""]] * 2), [*own.labels, *own.labels])
    assert len(shadow_pairs(twice, _guess, count=1)[0].rows) == 600
    seeds: list[int] = []
    shadow_pairs(own, lambda x, y, seed: (seeds.append(seed), _guess(x, y, seed))[1], count=2)
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3]


def _guess(inputs: Any, labels: Any, seed: int) -> Any:
    table = sorted(set(labels))
    return lambda asked: np.full((len(asked), len(table)), 1 / len(table)), table


# --- measures ------------------------------------------------------------------------------------------------


def test_area_and_interval_by_hand() -> None:
    hits, alarms = np.array([3.0, 2.0]), np.array([2.0, 1.0])
    below, above = placements(hits, alarms)
    assert below.tolist() == [1, 0.75] and above.tolist() == [0.75, 1]
    assert standard_error(below, above) == pytest.approx(np.sqrt(1 / 32))
    assert auc_interval(hits, alarms) == pytest.approx((0.875 - Z * np.sqrt(1 / 32), 1))


@pytest.mark.parametrize("decimals", [0, 1, 9])
def test_areas_are_those_of_scikit_learn(decimals: int) -> None:
    draw = np.random.default_rng(decimals)
    hits, alarms = draw.normal(1, 1, 70).round(decimals), draw.normal(0, 1, 90).round(decimals)
    truth = np.repeat([1, 0], [70, 90])
    assert auc(hits, alarms) == pytest.approx(roc_auc_score(truth, np.concatenate([hits, alarms])), abs=1e-12)
    below, above = placements(hits, alarms)
    kernel = (hits[:, None] > alarms) + 0.5 * (hits[:, None] == alarms)
    assert below == pytest.approx(kernel.mean(1)) and above == pytest.approx(kernel.mean(0))


def test_intervals_cover_as_often_as_they_say() -> None:
    draw = np.random.default_rng(5)
    inside = equal = 0
    for _ in range(400):
        # two attacks that are equally good, and see partly the same: the area is the normal distribution at 1 / √2
        hits, alarms = (0.6 * draw.normal(0, 1, n) + 0.8 * draw.normal(0, 1, (2, n)) for n in (60, 80))
        hits += 1
        low, high = auc_interval(hits[0], alarms[0])
        inside += low <= 0.7602 <= high
        low, high = against(_outcome(hits[0], alarms[0]), _outcome(hits[1], alarms[1])).interval
        equal += low <= 0 <= high
    assert 0.92 <= inside / 400 <= 0.98 and 0.92 <= equal / 400 <= 0.98


def _outcome(hits: Array, alarms: Array, attack: str = "any") -> Outcome:
    area = auc(hits, alarms)
    interval = auc_interval(hits, alarms)
    return Outcome(
        attack, FULL, 0, 0, area, interval, {}, len(hits), len(alarms), scores=np.concatenate([hits, alarms])
    )


def test_extremes() -> None:
    apart, alike = (np.arange(5) + 9.0, np.arange(8.0)), (np.ones(5), np.ones(8))
    assert auc_interval(*apart) == pytest.approx((0.025 ** (1 / 5), 1))
    assert auc_interval(*apart[::-1]) == pytest.approx((0, 1 - 0.025 ** (1 / 5)))
    assert auc_interval(*alike) == (0.5, 0.5)
    assert auc_interval(np.ones(1), np.arange(8.0)) == (0, 1)
    many, same = (np.arange(50) + 99.0, np.arange(80.0)), (np.ones(50), np.ones(80))
    assert against(_outcome(*many), _outcome(*same)).verdict == "more"
    assert against(_outcome(*same), _outcome(*many)).verdict == "less"
    assert against(_outcome(*same), _outcome(*same)).verdict == "equal"
    assert against(_outcome(*apart), _outcome(*alike)).verdict == "undecided"  # five rows say little
    assert against(_outcome(np.ones(1), np.arange(8.0)), _outcome(np.zeros(1), np.arange(8.0))).verdict == "undecided"


def test_hits_at_a_rate_of_false_alarms() -> None:
    hits, alarms = np.array([9.0, 5, 5, 1]), np.array([5.0, 4, 3, 2, 1, 0, 0, 0, 0, 0])
    assert tpr_at(hits, alarms, 0.01) == 0.25  # ties with an outsider cannot be had without it
    assert tpr_at(hits, alarms, 0.1) == 0.75
    assert tpr_at(hits, alarms, 1.0) == 1


def test_a_claim_is_measured_at_its_threshold(target: ModelPair) -> None:
    scores = np.where(target.truth, 2.0, 0.0)
    scores[:25], scores[100:150] = 0, 2
    outcome = measure(MembershipClaim("any", scores, 2.0, notes="so"), target, FULL)
    assert (outcome.hit_rate, outcome.false_positive_rate, outcome.notes) == (0.75, 0.2, "so")
    assert outcome.auc == pytest.approx(0.775)
    three = replace(target, unlearned=Sample(target.unlearned.inputs, [Label("digits", 33)] * 100))
    assert (
        "350 of 350 candidates have a label that only"
        in measure(MembershipClaim("any", scores, 2.0), three, FULL).notes
    )


# --- what is refused -----------------------------------------------------------------------------------------


def test_shadow_rows_must_be_the_attackers_own(rows: Sample, target: ModelPair) -> None:
    with pytest.raises(DataError, match=r"25 shadow rows are also the target's \(5 it was trained on, 20 outsiders\)"):
        refuse_overlap(target, rows.take(np.r_[75:80, 400:420, 560:580]))
    with pytest.raises(DataError, match="10 it was trained on, 0"):
        refuse_overlap(target, Sample(rows.columns[""][200:210].astype(np.float64), [Label("other", 1)] * 10))
    own = shadow_pairs(rows.take(np.r_[0:2, 600:700]), _guess, count=1)
    with pytest.raises(DataError, match="2 shadow rows"):
        Judges(own)(target)
    refuse_overlap(target, some(rows, 560, 600))


def test_rows_are_told_by_content(rows: Sample) -> None:
    one, other = {"a": np.zeros((2, 3)), "b": np.ones(2)}, {"b": np.ones(2, np.float32), "a": -np.zeros((2, 3))}
    labels = [Label("", 1)] * 2
    assert Sample(one, labels).digests == Sample(other, labels).digests
    assert Sample({"a": one["b"], "b": one["a"]}, labels).digests != Sample(one, labels).digests
    assert len(set(rows.digests)) == len(rows)


def test_pairs_that_make_no_sense(rows: Sample, target: ModelPair) -> None:
    none = rows.take(np.arange(0))
    with pytest.raises(DataError, match="no unlearned rows"):
        replace(target, unlearned=none)
    with pytest.raises(DataError, match="no outsiders"):
        replace(target, outsiders=none)
    with pytest.raises(DataError, match="3 outsiders are also among the target's training rows"):
        replace(target, outsiders=rows.take(np.r_[98:101, 400:420]))
    with pytest.raises(DataError, match="different inputs"):
        replace(target, outsiders=some(tumours(), 0, 5))
    with pytest.raises(DataError, match=r"different numbers of rows: \{'inputs': 5, 'labels': 4\}"):
        Sample(rows.columns[""][:5], rows.labels[:4])
    with pytest.raises(DataError, match=r"label 3 is not a splitwiper\.wire\.Label"):
        Sample(rows.columns[""][:1], [3])  # type: ignore[list-item]
    with pytest.raises(DataError, match="there are no inputs"):
        Sample({}, [])
    with pytest.raises(DataError, match="3 outputs stand for 2 labels"):
        Model(target.before.answers, [Label("", 1), Label("", 1), Label("", 2)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda said: said[:, :-1], r"shape \[350, 9\]; 350 rows and 10 labels make \[350, 10\]"),
        (lambda said: said[:-1], r"shape \[349, 10\]"),
        (lambda said: said[:, 0], r"shape \[350\]"),
        (lambda said: np.where(np.arange(350)[:, None] < 3, np.nan, said), "not finite in 3 rows"),
        (lambda said: said * 2, r"not posteriors in 350 rows \(row 0 sums to 2\); apply softmax"),
        (lambda said: said + np.r_[-2, 2, np.zeros(8)], "not posteriors in 350 rows"),
    ],
)
def test_answers_that_are_no_posteriors(change: Callable[[Array], Array], message: str, target: ModelPair) -> None:
    broken = Model(lambda asked: change(target.before.answers(asked)), target.before.labels)
    with pytest.raises(DataError, match=message):
        features(replace(target, after=broken))


def test_shadows_that_make_no_sense(rows: Sample, target: ModelPair, shadows: list[ModelPair]) -> None:
    own = some(rows, 600, 700)
    with pytest.raises(DataError, match="there are no shadows"):
        Judges([])
    with pytest.raises(DataError, match="no rows"):
        shadow_pairs(rows.take(np.arange(0)), _guess)
    for wrong in ({"count": 0}, {"share": 0.0}, {"share": 1.5}, {"forget": "all"}):
        with pytest.raises(DataError, match="at least one shadow"):
            shadow_pairs(own, _guess, **wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r'no shadow row has label \["other",3\]'):
        shadow_pairs(own, _guess, forget="class", labels=[Label("other", 3)])
    with pytest.raises(DataError, match="1 unlearned rows and 50 outsiders, and needs two"):
        shadow_pairs(own, _guess, share=0.02)
    with pytest.raises(DataError, match="no rows to train on"):
        shadow_pairs(own, _guess, share=1.0)
    lonely = replace(shadows[0], outsiders=shadows[0].outsiders.take(np.arange(1)))
    for attack in (two_model, label_only):
        with pytest.raises(DataError, match="shadow 1 has 90 unlearned rows and 1 outsiders"):
            attack([shadows[1], lonely])
    with pytest.raises(DataError, match="which rows it retained"):
        loss([replace(shadows[0], retained=None)], when="after")


def test_what_cannot_be_disturbed_measured_or_compared(target: ModelPair) -> None:
    with pytest.raises(DataError, match="no input can be disturbed"):
        next(perturbed(Sample(np.zeros((3, 2), bool), [Label("", 1)] * 3), seed=0))
    with pytest.raises(DataError, match="scores for 350 candidates"):
        measure(MembershipClaim("short", np.zeros(3), 0), target, FULL)
    one = _outcome(np.ones(3), np.zeros(4))
    for other in (_outcome(np.ones(3), np.zeros(4), "other"), _outcome(np.ones(4), np.zeros(3))):
        with pytest.raises(DataError, match="cannot be compared"):
            against(one, other)
