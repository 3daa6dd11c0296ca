"""A label's rows are divided at random among its codes: each row is sent once, under one of them.

Sends as many bytes as without masking, and the codes of one label differ in their counts. Their means do not differ:
whatever separates labels also separates the groups of codes.
"""

from __future__ import annotations

import numpy as np

from splitwiper.masking.codebook import Codebook
from splitwiper.masking.modes.mode import ExpandingMode, ModeInputs, codes_of, one_of
from splitwiper.wire.columns import Array


class Partition(ExpandingMode):
    """Sends each row under one code of its label, selected by the row's own HMAC."""

    def assign(self, held: ModeInputs, codebook: Codebook) -> tuple[Array, Array]:
        """Send every row once."""
        return np.arange(len(held)), one_of(codes_of(held, codebook), held, held.draws("partition"))
