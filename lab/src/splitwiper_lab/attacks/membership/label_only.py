"""The label-only attack: it sees no posteriors, only which label wins, and how well it withstands noise on the input.

Lu, Liang, Zhao, Lv, Liang and Wang, "Label-only membership inference attacks on machine unlearning without dependence
of posteriors", International Journal of Intelligent Systems 37, 2022. A row that a model was trained on is farther
from its decision borders. Each candidate is queried repeatedly with noise of several strengths, before and after; the
features are the shares of answers that are still the row's label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from splitwiper.errors import DataError
from splitwiper.seeding import Stream
from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.membership.classifier import learned
from splitwiper_lab.attacks.membership.measuring import MembershipClaim
from splitwiper_lab.attacks.membership.pairs import Model, ModelPair
from splitwiper_lab.attacks.membership.sample import Sample

NAME = "labels only"
LEVELS = (0.25, 0.5, 1.0, 2.0)
"""Noise levels, in standard deviations of all the candidates' values."""
SHARES = (0.05, 0.1, 0.2, 0.4)
"""Shares of tokens to replace, where inputs are tokens."""
Disturbance = Callable[[int, np.random.Generator], Array]
"""Returns the values of an input with noise of a level."""
REPEATS = 10
"""Queries per row and level."""


def label_only(shadows: Sequence[ModelPair], *, seed: int = 0) -> Callable[[ModelPair], MembershipClaim]:
    """Learn from shadows to recognise unlearned rows by how stable the winning labels are.

    A pair is queried ``1 + REPEATS × len(LEVELS)`` times per candidate and model.
    """
    return learned(NAME, partial(features, seed=seed), shadows, Stream(seed, "membership/label-only"))


def features(pair: ModelPair, *, seed: int) -> Array:
    """Return, per candidate, whether the answer is right before and after, and per level how often it stays right."""
    rows = pair.candidates
    before, after = np.zeros((2, len(rows), len(LEVELS)))  # shares of right answers: candidates × levels
    # both models get the same noise, so that a difference is the models' own
    for level, noisy in perturbed(rows, seed=seed):
        before[:, level] += _right(pair.before, noisy) / REPEATS
        after[:, level] += _right(pair.after, noisy) / REPEATS
    return np.column_stack([_right(pair.before, rows), _right(pair.after, rows), before, after, before - after])


def _right(model: Model, rows: Sample) -> Array:
    """Return whether each row's label wins: all this attack sees of a model."""
    won: Array = model.posteriors(rows).argmax(1) == model.outputs_of(rows.labels)
    return won


def perturbed(rows: Sample, *, seed: int) -> Iterator[tuple[int, Sample]]:
    """Yield (level, disturbed rows), each level several times.

    Floats and bytes get Gaussian noise, and bytes stay bytes; other integers are tokens, a share of which is replaced
    by other tokens that occur in the rows. Booleans, and integers with at most two values, are treated as masks and
    left unchanged, unless there is nothing else.

    Raises:
        DataError: no input can be disturbed.
    """
    disturbances: dict[str, Disturbance] = {}
    masks: dict[str, Disturbance] = {}
    for name, array in rows.columns.items():
        graded = array.dtype.kind == "f" or array.dtype == np.uint8
        distinct = len(np.unique(array))
        if distinct > 1 and graded:
            disturbances[name] = _bytes_or_floats(array)
        elif distinct > 1 and array.dtype.kind in "iu":
            (disturbances if distinct > 2 else masks)[name] = _tokens(array)
    disturbances = disturbances or masks
    if not disturbances:
        raise DataError("no input can be disturbed: all are constant, or neither numbers nor tokens.")
    for level in range(len(LEVELS)):
        for repeat in range(REPEATS):
            changed = {}
            for name, disturb in disturbances.items():
                stream = Stream(seed, f"membership/noise/{level}/{repeat}", name)
                changed[name] = disturb(level, np.random.Generator(np.random.Philox(key=stream.number)))
            yield level, rows.with_columns(rows.columns | changed)


def _bytes_or_floats(array: Array) -> Disturbance:
    spread = float(array.std(dtype=np.float64))

    def disturb(level: int, draw: np.random.Generator) -> Array:
        noisy = array + LEVELS[level] * spread * draw.standard_normal(array.shape)
        return (noisy.round().clip(0, 255) if array.dtype == np.uint8 else noisy).astype(array.dtype)

    return disturb


def _tokens(array: Array) -> Disturbance:
    known, places = np.unique(array, return_inverse=True)
    places = places.reshape(array.shape)

    def disturb(level: int, draw: np.random.Generator) -> Array:
        others = known[(places + draw.integers(1, len(known), array.shape)) % len(known)]  # never the token itself
        return np.where(draw.random(array.shape) < SHARES[level], others, array)

    return disturb
