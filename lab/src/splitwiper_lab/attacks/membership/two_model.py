"""The two-model attack: the change between posteriors before and after reveals an unlearned row.

Chen, Zhang, Wang, Backes, Humbert and Zhang, "When Machine Unlearning Jeopardizes Privacy", CCS 2021. Features depend
neither on the number of outputs nor on their order, so that a classifier trained on shadows of one task, or of some of
the labels, applies to models of another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from splitwiper.seeding import Stream
from splitwiper.wire import Label
from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.membership.classifier import EVEN, trained
from splitwiper_lab.attacks.membership.measuring import MembershipClaim
from splitwiper_lab.attacks.membership.pairs import Model, ModelPair
from splitwiper_lab.attacks.membership.shadows import check_shadows

NAME = "two models"
LEAST = 1e-12
"""The least probability in logarithms, for zeros and for labels without an output."""
_TOP = 3


def two_model(shadows: Sequence[ModelPair], *, seed: int = 0) -> Callable[[ModelPair], MembershipClaim]:
    """Learn from shadows to recognise unlearned rows by the posteriors of both models."""
    check_shadows(shadows)
    stream = Stream(seed, "membership/two-model")
    likely, how = trained([features(s) for s in shadows], [s.truth for s in shadows], stream=stream)

    def judge(pair: ModelPair) -> MembershipClaim:
        gone = int((pair.after.outputs_of(pair.candidates.labels) < 0).sum())
        return MembershipClaim(NAME, likely(features(pair)), EVEN, gone, how)

    return judge


def features(pair: ModelPair) -> Array:
    """Return features of each candidate from both posteriors (rows × features), independent of the models' outputs.

    The highest posteriors before, those of the same labels after, their differences, the highest after, the distance
    between both, entropies, and the probability and the loss of a row's claimed label. A label for which a model has no
    output has probability 0 there.
    """
    rows = pair.candidates
    models = (pair.before, pair.after)
    said = [model.posteriors(rows) for model in models]
    table = tuple(dict.fromkeys((*pair.before.labels, *pair.after.labels)))
    first, second = (_aligned(model, some, table) for model, some in zip(models, said, strict=True))
    order = np.lexsort((-second, -first), axis=1)[:, :_TOP]  # ties: by the other model, never by output order
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
    """Return posteriors in the order of a table of labels, with zeros for labels without an output."""
    out = np.zeros((len(posteriors), max(_TOP, len(table))))
    places = model.outputs_of(table)
    out[:, np.flatnonzero(places >= 0)] = posteriors[:, places[places >= 0]]
    return out


def _entropy(posteriors: Array) -> Array:
    """Return entropy scaled from 0 (one certain label) to 1 (uniform), so that numbers of outputs are comparable."""
    raw = -(posteriors * np.log(posteriors.clip(LEAST))).sum(1)
    return np.asarray(raw / np.log(max(2, posteriors.shape[1])))
