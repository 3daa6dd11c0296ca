"""A label's rows divided at random over its codes: each is sent once, under one of them.

As many bytes as without masking, and codes of one label differ in their counts. Their means do not differ: what tells
labels apart tells their codes' groups apart too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from splitwiper.masking.codebook import Codebook
from splitwiper.masking.modes.mode import Held, codes_of, one_of, summed
from splitwiper.wire.columns import Array


class Partition:
    """Each row under one code of its label, drawn by the row's own HMAC."""

    def assign(self, held: Held, book: Codebook) -> tuple[Array, Array]:
        """Every row once."""
        return np.arange(len(held)), one_of(codes_of(held, book), held, held.draws("partition"))

    def unmask(self, chances: Tensor, inputs: Mapping[str, Array], book: Codebook) -> Tensor:
        """The sum over a label's codes."""
        return summed(chances, book)
