"""Shadows: pairs of models that the attacker trains on its own rows, to learn what an unlearning looks like.

Half of the attacker's rows train a shadow; the other half stay outside. Some of the first half are unlearned by
retraining without them, whatever method the target uses: an attacker who knows that the target uses another method
would imitate it, with pairs of its own. Every second shadow swaps the halves, so that each row has a model that never
saw it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np

from splitwiper.errors import DataError
from splitwiper.seeding import Stream
from splitwiper.wire import Label
from splitwiper.wire.columns import Array
from splitwiper.wire.labels import in_order
from splitwiper_lab.attacks.membership.pairs import Answers, Model, ModelPair
from splitwiper_lab.attacks.membership.sample import Inputs, Sample

Trainer = Callable[[Inputs, Sequence[Label], int], tuple[Answers, Sequence[Label]]]
"""Trains a model on (inputs, labels, seed), and returns it with the labels of its outputs."""
Forget = Literal["rows", "part", "class"]
"""What a shadow unlearns: some of all rows, some rows of one label, or all rows of one label."""


def check_shadows(shadows: Sequence[ModelPair]) -> None:
    """Refuse shadows that nothing can be learned from.

    Raises:
        DataError: there are no shadows, or one has fewer than two rows of either kind or lacks its retained rows.
    """
    if not shadows:
        raise DataError("there are no shadows: the attacker learns from them; make some with shadow_pairs.")
    for n, shadow in enumerate(shadows):
        _enough(n, len(shadow.unlearned), len(shadow.outsiders))
        if shadow.retained is None:
            raise DataError(f"shadow {n} does not tell which rows it retained; the attacker, who trained it, knows.")


def _enough(n: int, unlearned: int, outsiders: int) -> None:
    if min(unlearned, outsiders) < 2:
        raise DataError(
            f"shadow {n} has {unlearned} unlearned rows and {outsiders} outsiders, and needs two of each; give a "
            "larger share, or more shadow rows of the label that it unlearns."
        )


def shadow_pairs(
    rows: Sample,
    train: Trainer,
    *,
    count: int = 4,
    forget: Forget = "rows",
    share: float = 0.2,
    labels: Sequence[Label] | None = None,
    seed: int = 0,
) -> list[ModelPair]:
    """Train shadows, each twice from one seed: with and without the rows that it unlearns.

    The candidates of a shadow have the same labels: if rows of one label are unlearned, the outsiders have that label.

    Args:
        rows: the attacker's own rows, none of them the target's (check with `refuse_overlap` before training). Rows
            with the same inputs count once. They need not include all of the target's labels, nor its task.
        train: trains a model.
        count: the number of shadows; four or more improve every attack.
        forget: what to unlearn.
        share: the share of those rows to unlearn; ignored for whole classes.
        labels: the labels that shadows unlearn, in turn; None for every label among the rows.
        seed: the seed of all randomness.

    Raises:
        DataError: there are too few rows to train on, or to distinguish.
    """
    if forget not in get_args(Forget) or count < 1 or not 0 < share <= 1:
        raise DataError(
            f"count {count}, forget {forget!r}, share {share}: give at least one shadow, one of "
            f"{', '.join(map(repr, get_args(Forget)))}, and a share above 0 and up to 1."
        )
    if not len(rows):
        raise DataError("the shadow set has no rows; give the attacker some of its own.")
    rows = rows.take(np.sort(np.unique(rows.digests, return_index=True)[1]))  # the first of each
    held = in_order(rows.labels)
    for label in labels or ():
        if label not in held:
            raise DataError(f"no shadow row has label {label.text}, which shadows should unlearn.")
    chosen: list[Label | None] = [None]  # rows of any label
    if forget != "rows":
        order = Stream(seed, "membership/labels").permutation(len(held))
        chosen = list(labels or map(held.__getitem__, order))
    return [_shadow(rows, train, chosen[n % len(chosen)], n, forget, share, seed) for n in range(count)]


def _shadow(
    rows: Sample, train: Trainer, label: Label | None, n: int, forget: Forget, share: float, seed: int
) -> ModelPair:
    """Train the ``n``-th shadow."""
    # shadows 2k and 2k + 1 share a division into halves, and swap them
    inside = _half(rows, Stream(seed, "membership/halves", n // 2)) ^ bool(n % 2)
    chosen = np.array([label in (None, own) for own in rows.labels])
    order = Stream(seed, "membership/unlearned", n).permutation(len(rows))
    mine = order[(inside & chosen)[order]]
    gone = mine if forget == "class" else mine[: round(share * len(mine))]
    stays = inside.copy()
    stays[gone] = False
    if not stays.any():
        raise DataError("unlearning leaves a shadow no rows to train on; give rows of more labels, or a lower share.")
    unlearned, outsiders = rows.take(np.sort(gone)), rows.take(np.flatnonzero(~inside & chosen))
    members = rows.take(np.flatnonzero(inside))
    _enough(n, len(unlearned), len(outsiders))
    number = Stream(seed, "membership/shadow", n).number
    # from one seed, so that the models differ by what the unlearned rows did, and by nothing else
    before = Model(*train(members.inputs, members.labels, number))
    left = rows.take(np.flatnonzero(stays))
    after = Model(*train(left.inputs, left.labels, number))
    return ModelPair(before, after, unlearned, outsiders, left)


def _half(rows: Sample, stream: Stream) -> Array:
    """Mark half of each label's rows, at random."""
    order = stream.permutation(len(rows))
    names = np.array([label.text for label in rows.labels])
    order = order[np.argsort(names[order], kind="stable")]  # label by label, at random within one
    inside = np.zeros(len(rows), bool)
    inside[order[::2]] = True
    return inside
