"""A hiding mode: a label's rows are divided into stripes by how large their activations are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from splitwiper.masking.codebook import Codebook
from splitwiper.masking.modes import ModeInputs
from splitwiper.masking.sealing import Draws
from splitwiper.wire import Label
from splitwiper.wire.columns import Array


class Striped:
    """Sends each row once, under the code of its stripe; the stripes' borders are quantiles of the survivors."""

    def __init__(self, secret: bytes, stripes: int = 2) -> None:
        self._secret, self._stripes = secret, stripes

    def expand(self, labels: Sequence[Label], draws: Draws) -> tuple[int, dict[Label, tuple[int, ...]]]:
        codes = draws.shuffled(list(range(len(labels) * self._stripes)))
        own = {label: tuple(codes[i * self._stripes : (i + 1) * self._stripes]) for i, label in enumerate(labels)}
        return len(codes), own

    def assign(self, held: ModeInputs, codebook: Codebook) -> tuple[Array, Array]:
        sizes = np.abs(held.features()).sum(axis=1)
        borders = np.quantile(sizes, np.arange(1, self._stripes) / self._stripes)  # fitted, and kept nowhere
        stripe = np.searchsorted(borders, sizes)
        # which stripe gets which code is the group's secret, so that codes are not in the order of sizes
        turn = Draws(self._secret, "turn").below(self._stripes)
        table = np.array([codebook.of(label) for label in held.labels])
        return np.arange(len(held)), table[held.index, (stripe + turn) % self._stripes]

    def unmask(self, chances: Tensor, inputs: Mapping[str, Array], codebook: Codebook) -> Tensor:
        return torch.stack([chances[:, list(codebook.of(label))].sum(dim=1) for label in codebook.labels], dim=1)
