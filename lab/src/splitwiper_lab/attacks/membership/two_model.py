"""The two-model attack: posteriors before and after give an unlearned row away by how they change.

Chen, Zhang, Wang, Backes, Humbert and Zhang, "When Machine Unlearning Jeopardizes Privacy", CCS 2021. Features depend
neither on the number of outputs nor on their order, so that a classifier made from shadows of one task, or of some of
the labels, reads models of another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from splitwiper.seeding import Stream
from splitwiper.wire import Label
from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.membership.classifier import EVEN, trained
from splitwiper_lab.attacks.membership.measuring import Claim
from splitwiper_lab.attacks.membership.pairs import Model, Pair
from splitwiper_lab.attacks.membership.shadows import check_shadows

NAME = "two models"
LEAST = 1e-12
"""What a probability counts as where it is 0, or its label has no output."""
_TOP = 3


def two_model(shadows: Sequence[Pair], *, seed: int = 0) -> Callable[[Pair], Claim]:
    """Learn from shadows to tell unlearned rows by the posteriors of both models."""
    check_shadows(shadows)
    stream = Stream(seed, "membership/two-model")
    likely, how = trained([features(s) for s in shadows], [s.truth for s in shadows], stream=stream)

    def judge(pair: Pair) -> Claim:
        gone = int((pair.after.outputs_of(pair.candidates.labels) < 0).sum())
        return Claim(NAME, likely(features(pair)), EVEN, gone, how)

    return judge


def features(pair: Pair) -> Array:
    """What both posteriors say of each candidate (rows × features), whatever outputs the models have.

    The highest posteriors before, those of the same labels after, their differences, the highest after, the distance
    between both, entropies, and the probability and the loss of the label that a row is said to have. A label that
    one of the models has no output for has probability 0 there.
    """
    rows = pair.candidates
    models = (pair.before, pair.after)
    said = [model.posteriors(rows) for model in models]
    table = tuple(dict.fromkeys((*pair.before.labels, *pair.after.labels)))
    first, second = (_aligned(model, some, table) for model, some in zip(models, said, strict=True))
    order = np.lexsort((-second, -first), axis=1)[:, :_TOP]  # ties by the other model, never by the outputs' order
    top, then = (np.take_along_axis(some, order, axis=1) for some in (first, second))
    own = [model.own(some, rows.labels) for model, some in zip(models, said, strict=True)]
    loss = [-np.log(some.clip(LEAST)) for some in own]
    single = [
        np.linalg.norm(first - second, axis=1),
        *(_entropy(some) for some in said),
        *own,
        own[0] - own[1],
        *loss,
        loss[1] - loss[0],
    ]
    return np.column_stack([top, then, top - then, -np.sort(-second, axis=1)[:, :_TOP], *single])


def _aligned(model: Model, posteriors: Array, table: Sequence[Label]) -> Array:
    """Posteriors by a table of labels, with zeros for those the model has no output for."""
    out = np.zeros((len(posteriors), max(_TOP, len(table))))
    places = model.outputs_of(table)
    out[:, np.flatnonzero(places >= 0)] = posteriors[:, places[places >= 0]]
    return out


def _entropy(posteriors: Array) -> Array:
    """From 0, one label for sure, to 1, all alike: so that many outputs and few compare."""
    raw = -(posteriors * np.log(posteriors.clip(LEAST))).sum(1)
    return np.asarray(raw / np.log(max(2, posteriors.shape[1])))
