"""Label expansion by duplication (Algorithm 4): every row is sent γ times, once under each of its label's codes.

Noise, where it is configured, is drawn anew for each copy. Without it the copies are equal, and with it they are close:
the server can match them. Row counts match too. It is here because it is the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from splitwiper.masking.codebook import Codebook
from splitwiper.masking.modes.mode import Held, codes_of, summed
from splitwiper.wire.columns import Array


class Duplicate:
    """Each row under every code of its label."""

    def assign(self, held: Held, book: Codebook) -> tuple[Array, Array]:
        """Every row as often as its label has codes."""
        table = codes_of(held, book)
        counts = np.array([len(table[label]) for label in held.labels])[held.index]
        source = np.repeat(np.arange(len(held)), counts)
        flat = np.concatenate([np.array(table[label], np.int32) for label in held.labels])
        starts = np.cumsum([0, *(len(table[label]) for label in held.labels)])[:-1]
        place = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)  # 0 … γ − 1 for each row
        return source, flat[starts[held.index[source]] + place]

    def unmask(self, chances: Tensor, inputs: Mapping[str, Array], book: Codebook) -> Tensor:
        """The sum over a label's codes."""
        return summed(chances, book)
