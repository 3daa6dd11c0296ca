"""Fit exponents: how fast a cost grows with a parameter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def exponent(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Fit the slope of ``log y`` over ``log x``: 0 is constant, 1 is linear. None if there is nothing to fit.

    >>> round(exponent([1, 2, 4], [3, 6, 12]), 6), exponent([1, 2], [5, 5]), exponent([1, 2], [0, 0])
    (1.0, 0.0, 0.0)
    """
    if len(set(x)) < 2:
        return None
    if not any(y):
        return 0.0
    if min(x) <= 0 or min(y) <= 0:
        return None
    slope = float(np.polyfit(np.log(x), np.log(y), 1)[0])
    return 0.0 if abs(slope) < 1e-12 else slope
