"""A label's rows are divided at random among its codes: each row is sent once, under one of them.

Sends as many bytes as without masking, and the codes of one label differ in their counts. Their means do not differ:
whatever separates labels also separates the groups of codes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from splitwiper.masking.codebook import Codebook
from splitwiper.masking.modes.mode import ModeInputs, codes_of, one_of, summed
from splitwiper.wire.columns import Array


class Partition:
    """Sends each row under one code of its label, selected by the row's own HMAC."""

    def assign(self, held: ModeInputs, codebook: Codebook) -> tuple[Array, Array]:
        """Send every row once."""
        return np.arange(len(held)), one_of(codes_of(held, codebook), held, held.draws("partition"))

    def unmask(self, chances: Tensor, inputs: Mapping[str, Array], codebook: Codebook) -> Tensor:
        """Sum the chances of each label's codes."""
        return summed(chances, codebook)
