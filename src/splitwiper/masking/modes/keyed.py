"""Codes shared by several labels: a secret bucket of the input selects which code stands for a label.

Buckets are a fixed function of the group's key and the input, never fitted to data, so clients know them at
prediction time too, and forgetting does not change them. Every code mixes labels.

The server half cannot tell buckets apart near their borders, so a label's chance is not read off one code: `unmask`
finds the labels that best explain the chances of all codes, given how likely each bucket looks at the input's position.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from splitwiper.config import Masking
from splitwiper.masking.codebook import Codebook
from splitwiper.masking.modes.mode import ModeInputs, codes_of, one_of
from splitwiper.masking.sealing import Draws, GroupKey
from splitwiper.wire.columns import Array

_ROUNDS = 20
_SIDE = 4
_TINY = 1e-12
_CROWDED, _FEW = 0.6, 20
"""If this share of at least this many rows is in one bucket, buckets hide little, and a warning is logged."""
_log = logging.getLogger("splitwiper")


class Keyed:
    """Sends each row under its label's code in the row's bucket."""

    def __init__(self, masking: Masking, key: GroupKey, version: int) -> None:
        self._buckets = masking.buckets
        self._key = key.derive("buckets", version)
        self._views: dict[int, Array] = {}
        self._blur = min(0.2 * masking.buckets, 2.5)  # in buckets: how far off the server half may be

    def assign(self, held: ModeInputs, codebook: Codebook) -> tuple[Array, Array]:
        """Send every row once."""
        places = np.concatenate([self.places(block) for block in held.inputs()])
        fullest = np.bincount(places.astype(np.int64), minlength=self._buckets).max(initial=0) / max(1, len(places))
        if self._buckets > 1 and fullest > _CROWDED and len(places) >= _FEW:
            _log.warning(
                "masking.mode = 'keyed' hides little here: %.0f %% of a client's rows lie in one of %d buckets. Bring "
                "the columns of tables to one scale beforehand, by numbers that all clients share.",
                100 * fullest,
                self._buckets,
            )
        return np.arange(len(held)), one_of(codes_of(held, codebook), held, places.astype(np.int64))

    def places(self, inputs: Mapping[str, Array]) -> Array:
        """Return each row's position on the circle of buckets, 0 to B: the angle of two secret projections of it."""
        coarse = np.concatenate([_coarse(inputs[name]) for name in sorted(inputs)], axis=1)
        # torch, because its numerics are pinned and in the fingerprint; those of NumPy's BLAS are not
        across, up = torch.from_numpy(self._weights(coarse.shape[1])) @ torch.from_numpy(coarse).T
        turn: Array = torch.atan2(up, across).numpy() / (2 * np.pi) % 1.0
        places: Array = np.minimum(turn * self._buckets, np.nextafter(self._buckets, 0))
        return places

    def _weights(self, width: int) -> Array:
        """Return two secret projection vectors of this width, drawn from HMACs so that all clients have the same."""
        if width not in self._views:
            draws = Draws(self._key, width)
            drawn = [draws.below(2**32) / 2**31 - 1 for _ in range(2 * width)]
            self._views[width] = np.array(drawn).reshape(2, width)
        return self._views[width]

    def unmask(self, chances: Tensor, inputs: Mapping[str, Array], codebook: Codebook) -> Tensor:
        """Estimate the chances of labels that best explain those of the codes (expectation–maximisation)."""
        near = self._near(torch.from_numpy(self.places(inputs)))  # n × B
        table = torch.tensor([codebook.of(label) for label in codebook.labels])  # Q × B
        codes = torch.nn.functional.one_hot(table, codebook.outputs).double()  # Q × B × E
        mixed = torch.einsum("nb,qbe->nqe", near, codes)  # the probability that a label shows as each code
        chances = chances.double()
        found = torch.full((len(chances), len(table)), 1 / len(table), dtype=torch.float64)
        for _ in range(_ROUNDS):
            # each round shares out a code's chance among the labels that can show as it; the likelihood never falls
            explained = torch.einsum("nq,nqe->ne", found, mixed).clamp(min=_TINY)
            found = found * torch.einsum("nqe,ne->nq", mixed, chances / explained)
            found = found / found.sum(dim=1, keepdim=True).clamp(min=_TINY)
        return found

    def _near(self, places: Tensor) -> Tensor:
        """Return the probability that the server half takes a row for one of each bucket: a bell around it."""
        edges = torch.arange(self._buckets + 1, dtype=torch.float64)
        weights = torch.zeros(len(places), self._buckets, dtype=torch.float64)
        for turn in (-self._buckets, 0, self._buckets):
            reach = torch.special.ndtr((edges + turn - places[:, None]) / self._blur)
            weights += reach[:, 1:] - reach[:, :-1]
        return weights / weights.sum(dim=1, keepdim=True)


def _coarse(values: Array) -> Array:
    """Reduce rows to a few numbers of mean 0 and deviation 1: images are pooled to small ones, others flattened."""
    if values.ndim == 4 and min(values.shape[2:]) >= _SIDE:
        small = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(np.array(values)).float(), _SIDE)
        flat: Array = small.flatten(1).double().numpy()
    else:
        flat = values.reshape(len(values), math.prod(values.shape[1:])).astype(np.float64)
    flat = flat - flat.mean(axis=1, keepdims=True)
    flat /= np.maximum(flat.std(axis=1, keepdims=True), _TINY)
    return flat
