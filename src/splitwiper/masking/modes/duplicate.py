"""Label expansion by duplication (Algorithm 4): every row is sent γ times, once under each of its label's codes.

Noise, if configured, is drawn independently for each copy. Without noise the copies are equal, and with it they are
close, so the server can match them. Row counts match too. The mode is here because it is the paper's.
"""

from __future__ import annotations

import numpy as np

from splitwiper.masking.codebook import Codebook
from splitwiper.masking.modes.mode import ExpandingMode, ModeInputs, codes_of
from splitwiper.wire.columns import Array


class Duplicate(ExpandingMode):
    """Sends each row under every code of its label."""

    def assign(self, held: ModeInputs, codebook: Codebook) -> tuple[Array, Array]:
        """Repeat every row once per code of its label."""
        table = codes_of(held, codebook)
        counts = np.array([len(table[label]) for label in held.labels])[held.index]
        source = np.repeat(np.arange(len(held)), counts)
        flat = np.concatenate([np.array(table[label], np.int32) for label in held.labels])
        starts = np.cumsum([0, *(len(table[label]) for label in held.labels)])[:-1]
        place = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)  # 0 … γ − 1 for each row
        return source, flat[starts[held.index[source]] + place]
