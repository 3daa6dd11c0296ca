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
        own = [np.array(table[label], np.int32) for label in held.labels]
        per_label = np.array(list(map(len, own)))  # γ of each label
        per_row = per_label[held.index]
        source = np.repeat(np.arange(len(held)), per_row)
        # the copies of a row are numbered 0 … γ − 1: positions in the whole, less the position of the row's first copy
        first = np.cumsum(per_row) - per_row
        copy = np.arange(len(source)) - np.repeat(first, per_row)
        # all labels' codes in one row; a label's begin where those of the labels before it end
        codes = np.concatenate(own)
        begin = np.cumsum(per_label) - per_label
        return source, codes[begin[held.index[source]] + copy]
