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
from splitwiper_lab.attacks.membership.classifier import learned
from splitwiper_lab.attacks.membership.measuring import MembershipClaim
from splitwiper_lab.attacks.membership.pairs import Model, ModelPair

NAME = "two models"
LEAST = 1e-12
"""The least probability in logarithms, for zeros and for labels without an output."""
_TOP = 3


def two_model(shadows: Sequence[ModelPair], *, seed: int = 0) -> Callable[[ModelPair], MembershipClaim]:
    """Learn from shadows to recognise unlearned rows by the posteriors of both models."""
    return learned(NAME, features, shadows, Stream(seed, "membership/two-model"))


def features(pair: ModelPair) -> Array:
    """Return features of each candidate from both posteriors (rows × features), independent of the models' outputs.

    The highest posteriors before, those of the same labels after, their differences, the highest after, the distance
    between both, entropies, and the probability and the loss of a row's claimed label. A label for which a model has no
    output has probability 0 there.
    """
    rows, before, after = pair.candidates, pair.before, pair.after
    old, new = before.posteriors(rows), after.posteriors(rows)
    table = tuple(dict.fromkeys((*before.labels, *after.labels)))
    first, second = _aligned(before, old, table), _aligned(after, new, table)  # rows × labels of both models
    order = np.lexsort((-second, -first), axis=1)[:, :_TOP]  # ties: by the other model, never by output order
    top, then = np.take_along_axis(first, order, axis=1), np.take_along_axis(second, order, axis=1)
    own, own_after = before.own(old, rows.labels), after.own(new, rows.labels)
    loss, loss_after = -np.log(own.clip(LEAST)), -np.log(own_after.clip(LEAST))
    of_three = [top, then, top - then, -np.sort(-second, axis=1)[:, :_TOP]]
    distance = np.linalg.norm(first - second, axis=1)
    of_all = [distance, _entropy(old), _entropy(new)]
    of_label = [own, own_after, own - own_after, loss, loss_after, loss_after - loss]
    return np.column_stack([*of_three, *of_all, *of_label])


def _aligned(model: Model, posteriors: Array, table: Sequence[Label]) -> Array:
    """Return posteriors in the order of a table of labels, with zeros for labels without an output."""
    aligned = np.zeros((len(posteriors), max(_TOP, len(table))))  # models with fewer outputs have zeros there too
    places = model.outputs_of(table)
    aligned[:, np.flatnonzero(places >= 0)] = posteriors[:, places[places >= 0]]
    return aligned


def _entropy(posteriors: Array) -> Array:
    """Return entropy scaled from 0 (one certain label) to 1 (uniform), so that numbers of outputs are comparable."""
    raw = -(posteriors * np.log(posteriors.clip(LEAST))).sum(1)
    return np.asarray(raw / np.log(max(2, posteriors.shape[1])))
