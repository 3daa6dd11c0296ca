"""A label's rows are divided by their activations: each code of a label is one cluster (kind) of its rows.

The clusters' centres are fitted to the client's surviving rows, again for every shard, and never stored.
"""

from __future__ import annotations

import numpy as np
import torch

from splitwiper.masking.codebook import Codebook
from splitwiper.masking.modes.mode import ExpandingMode, ModeInputs, codes_of
from splitwiper.masking.sealing import Draws
from splitwiper.wire.columns import Array

_ROUNDS = 25


class Subclass(ExpandingMode):
    """Sends each row under the code of its kind: k-means within the label, with as many kinds as codes."""

    def assign(self, held: ModeInputs, codebook: Codebook) -> tuple[Array, Array]:
        """Send every row once."""
        table, features = codes_of(held, codebook), held.features().astype(np.float64)
        codes = np.empty(len(held), np.int32)
        for number, label in enumerate(held.labels):
            rows = np.flatnonzero(held.index == number)
            draws = Draws(held.key, "subclass", label.text, held.macs[rows].tobytes())
            codes[rows] = np.array(table[label], np.int32)[kinds(features[rows], len(table[label]), draws)]
        return np.arange(len(held)), codes


def kinds(features: Array, count: int, draws: Draws) -> Array:
    """Return the kind of every row by k-means (Lloyd). Centres start at rows drawn far from those drawn before.

    >>> kinds(np.array([[0.0], [9.0], [0.1], [9.1]]), 2, Draws(b"key")).tolist() in ([0, 1, 0, 1], [1, 0, 1, 0])
    True
    """
    count = min(count, len(features))
    middles = features[[draws.below(len(features))]]
    while len(middles) < count:
        far = ((features[:, None] - middles) ** 2).sum(axis=2).min(axis=1).cumsum()
        at = np.searchsorted(far, far[-1] * (draws.below(2**32) / 2**32), side="right")
        middles = np.concatenate([middles, features[[min(int(at), len(features) - 1)]]])
    kind = np.zeros(len(features), np.int64)
    for _ in range(_ROUNDS):
        # torch, because its numerics are pinned and in the fingerprint; those of NumPy's BLAS are not
        products = (torch.from_numpy(features) @ torch.from_numpy(middles).T).numpy()
        distance = (middles**2).sum(axis=1) - 2 * products
        kind = distance.argmin(axis=1)
        for number in range(count):
            if (mine := kind == number).any():
                middles[number] = features[mine].mean(axis=0)
    return kind
