"""Codes shared by several labels: a secret bucket of the input selects which code stands for a label.

Buckets are a fixed function of the group's key and the input, never fitted to data, so clients know them at
prediction time too, and forgetting does not change them. Every code mixes labels.

The server half cannot tell buckets apart near their borders, so a label's chance is not read off one code: `unmask`
finds the labels that best explain the chances of all codes, given how likely each bucket looks at the input's position.
"""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from splitwiper.errors import ConfigError
from splitwiper.masking.codebook import Codebook
from splitwiper.masking.modes.mode import ModeInputs, codes_of, one_of
from splitwiper.masking.sealing import Draws
from splitwiper.wire import Label
from splitwiper.wire.columns import Array

_ROUNDS = 20
_SIDE = 4
_TINY = 1e-12
_WAYS = 64  # random hands that are tried for each bucket
# If this share of at least this many rows is in one bucket, buckets hide little, and a warning is logged.
_CROWDED, _FEW = 0.6, 20
_log = logging.getLogger("splitwiper")


class Keyed:
    """Sends each row under its label's code in the row's bucket."""

    def __init__(self, secret: bytes, *, codes: int, buckets: int) -> None:
        self._key, self._outputs, self._buckets = secret, codes, buckets
        self._views: dict[int, Array] = {}
        self._blur = min(0.2 * buckets, 2.5)  # in buckets: how far off the server half may be

    def expand(self, labels: Sequence[Label], draws: Draws) -> tuple[int, dict[Label, tuple[int, ...]]]:
        """Give every label a code of its own in each bucket; the b-th code is that of bucket b."""
        outputs = self._outputs or 2 * len(labels)
        if outputs < len(labels):
            raise ConfigError(
                f"masking.codes = {outputs} is fewer than the {len(labels)} labels that clients agreed on: each needs "
                "a code of its own in every bucket; give more."
            )
        return outputs, _injections(labels, outputs, self._buckets, draws)

    def assign(self, held: ModeInputs, codebook: Codebook) -> tuple[Array, Array]:
        """Send every row once."""
        places = np.concatenate([self.places(block) for block in held.inputs()])
        fullest = np.bincount(places.astype(np.int64), minlength=self._buckets).max(initial=0) / max(1, len(places))
        if self._buckets > 1 and fullest > _CROWDED and len(places) >= _FEW:
            _log.warning(
                "masking.mode = 'keyed' hides little here: %.0f %% of a client's rows are in one of %d buckets. Bring "
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
        estimate = torch.full((len(chances), len(table)), 1 / len(table), dtype=torch.float64)
        for _ in range(_ROUNDS):
            # each round shares out a code's chance among the labels that can show as it; the likelihood never falls
            explained = torch.einsum("nq,nqe->ne", estimate, mixed).clamp(min=_TINY)
            estimate = estimate * torch.einsum("nqe,ne->nq", mixed, chances / explained)
            estimate = estimate / estimate.sum(dim=1, keepdim=True).clamp(min=_TINY)
        return estimate

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


def _injections(labels: Sequence[Label], outputs: int, buckets: int, draws: Draws) -> dict[Label, tuple[int, ...]]:
    """Give every label a code of its own in each bucket.

    Codes are dealt like cards, so that all are used about equally often and neighbouring buckets share few of them.
    Of `_WAYS` random hands for a bucket, take the one that gives the fewest labels a code they already had.
    """
    tables: list[list[int]] = []  # for each bucket, the code of every label
    deck: list[int] = []  # codes that were shuffled in but not dealt yet: it passes from one bucket to the next
    for _ in range(buckets):
        dealt: list[int] = []
        while len(dealt) < len(labels):
            at = next((i for i, code in enumerate(deck) if code not in dealt), None)
            if at is None:  # every code left in the deck, if any, is already dealt in this bucket
                deck += draws.shuffled(list(range(outputs)))
                continue
            dealt.append(deck.pop(at))  # the first code not yet in this bucket: labels of a bucket never share one
        # always `_WAYS` hands, whatever they show: all clients of the group stay at the same place of the stream
        hands = [draws.shuffled(dealt) for _ in range(_WAYS)]
        tables.append(min(hands, key=lambda hand: _repeats(hand, tables)))
    return dict(zip(labels, zip(*tables, strict=True), strict=True))  # for each label, its code in every bucket


def _repeats(hand: Sequence[int], tables: Sequence[Sequence[int]]) -> int:
    """Count how often a label would get a code that it already has in an earlier bucket."""
    return sum(sum(map(operator.eq, hand, table)) for table in tables)
