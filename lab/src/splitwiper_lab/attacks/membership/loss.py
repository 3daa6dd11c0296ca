"""The loss attack: rows that a model was trained on have a lower loss than their difficulty suggests.

Yeom, Giacomelli, Fredrikson and Jha, CSF 2018, with the calibration of Watson, Guo, Cormode and Sablayrolles, ICLR
2022: subtract from a row's loss its mean loss under shadow models that were not trained on it, or the fraction of it
that best separates the shadows' members. Queried before the unlearning, a model reveals its training rows; queried
after, what remains of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Literal

import numpy as np

from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.membership.measuring import MembershipClaim
from splitwiper_lab.attacks.membership.pairs import Model, ModelPair
from splitwiper_lab.attacks.membership.roc import auc
from splitwiper_lab.attacks.membership.sample import Sample
from splitwiper_lab.attacks.membership.shadows import check_shadows
from splitwiper_lab.attacks.membership.two_model import LEAST

BEFORE, AFTER = "loss before", "loss after"
WEIGHTS = (1.0, 0.5, 0.25, 0.1, 0.0)
"""Fractions of the difficulty to subtract. All of it would hide easy members, whose loss is low in any model."""


def loss(shadows: Sequence[ModelPair], *, when: Literal["before", "after"]) -> Callable[[ModelPair], MembershipClaim]:
    """Learn the calibration and the threshold from shadows, for one of a pair's models.

    The threshold always comes from the shadows' models before unlearning: they were certainly trained on the unlearned
    rows, so they show a member's typical loss. For the model after, the question is whether rows are still members.
    """
    check_shadows(shadows)
    hard = np.concatenate([difficulty(shadow.candidates, shadows, but=shadow.before) for shadow in shadows])
    raw = np.concatenate([losses(shadow.before, shadow.candidates) for shadow in shadows])
    truth = np.concatenate([shadow.truth for shadow in shadows])
    calibrated = bool(np.isfinite(hard).any())  # one shadow that forgets a class gives no difficulty at all
    usual = float(np.nanmean(hard)) if calibrated else 0.0
    hard = np.nan_to_num(hard, nan=usual)

    def worth(weight: float) -> float:
        # per shadow, because losses of two models may differ by more than those of members and outsiders
        areas, start = [], 0
        for shadow in shadows:
            part = slice(start, start + len(shadow.truth))
            start = part.stop
            scores = (weight * hard - raw)[part]
            areas.append(auc(scores[shadow.truth], scores[~shadow.truth]))
        return float(np.mean(areas))

    weight = max(WEIGHTS, key=worth) if calibrated else 0.0
    cut = threshold(weight * hard - raw, truth)

    def judge(pair: ModelPair) -> MembershipClaim:
        model, rows = pair.before if when == "before" else pair.after, pair.candidates
        hard = difficulty(rows, shadows)
        notes = f"{weight:.0%} of the difficulty taken away"
        if weight and (unknown := int(np.isnan(hard).sum())):
            notes += f"; the usual one for {unknown} rows, whose label no shadow knows"
        gone = int((model.outputs_of(rows.labels) < 0).sum())
        scores = weight * np.nan_to_num(hard, nan=usual) - losses(model, rows)
        return MembershipClaim(BEFORE if when == "before" else AFTER, scores, cut, gone, notes)

    return judge


def losses(model: Model, rows: Sample) -> Array:
    """Return the loss of each row: minus the logarithm of its label's probability, which is at least 1e-12."""
    found: Array = -np.log(model.own(model.posteriors(rows), rows.labels).clip(LEAST))
    return found


def difficulty(rows: Sample, shadows: Sequence[ModelPair], *, but: Model | None = None) -> Array:
    """Return the mean loss of each row under shadow models that know its label and were not trained on it.

    The model under attack is left out (``but``). Where no other is such a model, the difficulty is NaN.
    """
    total, count = np.zeros(len(rows)), np.zeros(len(rows))
    for model, trained_on in chain.from_iterable(shadow.models for shadow in shadows):
        seen = np.fromiter(map(trained_on.__contains__, rows.digests), bool)
        asked = np.flatnonzero(~seen & (model.outputs_of(rows.labels) >= 0))
        if model is not but and len(asked):  # only these: a shadow of another task may not accept the others' inputs
            total[asked] += losses(model, rows.take(asked))
            count[asked] += 1
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)  # NaN is filled with the usual difficulty


def threshold(scores: Array, truth: Array) -> float:
    """Return the threshold with the best balanced accuracy, halfway between the scores it separates.

    >>> threshold(np.array([5.0, 4.0, 1.0, 0.0]), np.array([True, True, False, False]))
    2.5
    """
    values = np.unique(scores)
    cuts = np.concatenate([values[:1], (values[1:] + values[:-1]) / 2, values[-1:] + 1])
    hits, alarms = np.sort(scores[truth]), np.sort(scores[~truth])
    found = 1 - np.searchsorted(hits, cuts) / len(hits)  # scores at or above the threshold
    false = 1 - np.searchsorted(alarms, cuts) / len(alarms)
    return float(cuts[int((found - false).argmax())])
