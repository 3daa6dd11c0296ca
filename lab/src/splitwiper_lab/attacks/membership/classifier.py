"""The classifier of attacks that learn from shadows: the better of two, by cross-validation on the shadows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from splitwiper.seeding import Stream
from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.membership.measuring import MembershipClaim
from splitwiper_lab.attacks.membership.pairs import ModelPair
from splitwiper_lab.attacks.membership.shadows import check_shadows

EVEN = 0.5
"""The threshold: in training, unlearned rows and outsiders have equal weight, whatever their numbers."""
_FOLDS = 5
_TREES = 100


def learned(
    attack: str, features: Callable[[ModelPair], Array], shadows: Sequence[ModelPair], stream: Stream
) -> Callable[[ModelPair], MembershipClaim]:
    """Learn from the features (candidates × features) of shadows to recognise the unlearned rows of any pair.

    With several shadows, each fold keeps a shadow whole, so that a classifier is judged on a model it has not seen.
    """
    check_shadows(shadows)
    x = np.concatenate(list(map(features, shadows)))
    truths = [shadow.truth for shadow in shadows]
    y, state = np.concatenate(truths), stream.number % 2**32
    folds = list(_folds(x, y, list(map(len, truths)), state))
    classifiers, worth = _classifiers(state), {}
    for name, classifier in classifiers.items():
        worth[name] = cross_val_score(classifier, x, y, cv=folds, scoring="roc_auc").mean()
    best = max(worth, key=worth.__getitem__)
    chosen = classifiers[best].fit(x, y)

    def judge(pair: ModelPair) -> MembershipClaim:
        gone = int((pair.after.outputs_of(pair.candidates.labels) < 0).sum())
        return MembershipClaim(attack, chosen.predict_proba(features(pair))[:, 1], EVEN, gone, best)

    return judge


def _folds(x: Array, y: Array, sizes: Sequence[int], state: int) -> Iterator[tuple[Array, Array]]:
    """Yield the rows to train on and the rows to judge by, for each fold."""
    if len(sizes) > 1:
        groups = np.repeat(np.arange(len(sizes)), sizes)
        yield from GroupKFold(min(_FOLDS, len(sizes))).split(x, y, groups)
    else:
        # a fold needs a row of either kind, so there are at most as many folds as rows of the rarer kind
        few = min(int(y.sum()), int((~y).sum()))
        yield from StratifiedKFold(min(_FOLDS, few), shuffle=True, random_state=state).split(x, y)


def _classifiers(state: int) -> dict[str, Any]:
    # balanced: a shadow unlearns a small share of its rows, and a classifier that always says no would be right mostly
    regression = LogisticRegression(class_weight="balanced", max_iter=2000)
    forest = RandomForestClassifier(_TREES, min_samples_leaf=3, class_weight="balanced", random_state=state, n_jobs=1)
    return {"logistic regression": make_pipeline(StandardScaler(), regression), "random forest": forest}
