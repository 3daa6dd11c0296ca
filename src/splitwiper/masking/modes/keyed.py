"""Codes that labels share: a secret bucket of the input picks which code stands for a label.

Buckets are a fixed function of the group's key and the input, never fitted to data, so that clients know them at
prediction time too, and forgetting changes nothing about them. Every code mixes labels.

The server half cannot tell buckets apart near their borders, so a label's chance is not read off one code: `unmask`
asks which labels explain the chances of all codes best, given how likely each bucket looks from where the input lies.
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
from splitwiper.masking.modes.mode import Held, codes_of, one_of
from splitwiper.masking.sealing import Draws, GroupKey
from splitwiper.wire.columns import Array

_ROUNDS = 20
_SIDE = 4
_TINY = 1e-12
_CROWDED, _FEW = 0.6, 20
"""The share of rows in one bucket, and of how many rows, from which buckets hide little."""
_log = logging.getLogger("splitwiper")


class Keyed:
    """Each row under its label's code in the row's bucket."""

    def __init__(self, masking: Masking, key: GroupKey, version: int) -> None:
        self._buckets = masking.buckets
        self._key = key.derive("buckets", version)
        self._views: dict[int, Array] = {}
        self._blur = min(0.2 * masking.buckets, 2.5)  # in buckets: how far the server half may be off

    def assign(self, held: Held, book: Codebook) -> tuple[Array, Array]:
        """Every row once."""
        places = np.concatenate([self.places(block) for block in held.inputs()])
        fullest = np.bincount(places.astype(np.int64), minlength=self._buckets).max(initial=0) / max(1, len(places))
        if self._buckets > 1 and fullest > _CROWDED and len(places) >= _FEW:
            _log.warning(
                "masking.mode = 'keyed' hides little here: %.0f %% of a client's rows lie in one of %d buckets. Bring "
                "the columns of tables to one scale beforehand, by numbers that all clients share.",
                100 * fullest,
                self._buckets,
            )
        return np.arange(len(held)), one_of(codes_of(held, book), held, places.astype(np.int64))

    def places(self, inputs: Mapping[str, Array]) -> Array:
        """Where on the circle of buckets every row lies, from 0 to B: the direction two secret views of it point."""
        coarse = np.concatenate([_coarse(inputs[name]) for name in sorted(inputs)], axis=1)
        # by torch: its numerics are pinned and in the fingerprint, those of NumPy's BLAS are not
        across, up = torch.from_numpy(self._weights(coarse.shape[1])) @ torch.from_numpy(coarse).T
        turn: Array = torch.atan2(up, across).numpy() / (2 * np.pi) % 1.0
        places: Array = np.minimum(turn * self._buckets, np.nextafter(self._buckets, 0))
        return places

    def _weights(self, width: int) -> Array:
        """Two secret views of so many numbers; from HMACs, so that they are the same wherever a client runs."""
        if width not in self._views:
            draws = Draws(self._key, width)
            drawn = [draws.below(2**32) / 2**31 - 1 for _ in range(2 * width)]
            self._views[width] = np.array(drawn).reshape(2, width)
        return self._views[width]

    def unmask(self, chances: Tensor, inputs: Mapping[str, Array], book: Codebook) -> Tensor:
        """The labels' chances that explain those of the codes best (expectation and maximisation)."""
        near = self._near(torch.from_numpy(self.places(inputs)))  # n × B
        table = torch.tensor([book.of(label) for label in book.labels])  # Q × B
        codes = torch.nn.functional.one_hot(table, book.outputs).double()  # Q × B × E
        mixed = torch.einsum("nb,qbe->nqe", near, codes)  # how likely a label shows as each code
        chances = chances.double()
        found = torch.full((len(chances), len(table)), 1 / len(table), dtype=torch.float64)
        for _ in range(_ROUNDS):
            explained = torch.einsum("nq,nqe->ne", found, mixed).clamp(min=_TINY)
            found = found * torch.einsum("nqe,ne->nq", mixed, chances / explained)
            found = found / found.sum(dim=1, keepdim=True).clamp(min=_TINY)
        return found

    def _near(self, places: Tensor) -> Tensor:
        """How likely the server half takes each row for one of each bucket: a bell around its place on the circle."""
        edges = torch.arange(self._buckets + 1, dtype=torch.float64)
        weights = torch.zeros(len(places), self._buckets, dtype=torch.float64)
        for turn in (-self._buckets, 0, self._buckets):
            reach = torch.special.ndtr((edges + turn - places[:, None]) / self._blur)
            weights += reach[:, 1:] - reach[:, :-1]
        return weights / weights.sum(dim=1, keepdim=True)


def _coarse(values: Array) -> Array:
    """Rows as a few numbers with mean 0 and deviation 1: images as small ones, everything else as it is."""
    if values.ndim == 4 and min(values.shape[2:]) >= _SIDE:
        small = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(np.array(values)).float(), _SIDE)
        flat: Array = small.flatten(1).double().numpy()
    else:
        flat = values.reshape(len(values), math.prod(values.shape[1:])).astype(np.float64)
    flat = flat - flat.mean(axis=1, keepdims=True)
    flat /= np.maximum(flat.std(axis=1, keepdims=True), _TINY)
    return flat
