"""How much noise an epsilon requires, and how the paper's epsilon may be read.

Neighbours differ in one row's inputs; its label, its side inputs, the number of rows and the client half
are taken as known. With ``c`` the clipping bound, the most that released values can move (the sensitivity) is

| reading | Laplace | Gaussian | with `nonnegative` |
|---|---|---|---|
| ``row`` | 2c in L1, the row's L1 norm being ≤ c | 2c in L2, its L2 norm being ≤ c | L1 as before, L2 √2·c |
| ``value`` | 2c | 2c | c |
| ``mean`` | 2c / n, where n rows have the label | 2c / n | c / n |

Laplace noise has scale sensitivity / ε, Gaussian noise the deviation of the analytic Gaussian mechanism.

The paper (Algorithm 4) adds ``DP(ε)`` with ε = 0.1 or 0.2, names neither clipping nor sensitivity, and reports almost
no loss of accuracy. Two readings are **inferred**; the paper states neither (`paper`):

- A, 'value': sensitivity 1 for each value. Scale 5 at ε = 0.2, on values clipped to 1: noise of 2 costs most of the
  accuracy already.
- B, 'mean': one row's influence on the mean of its masked label. Scale 0.005 at ε = 0.2 and 1,000 rows: small
  enough for the paper's accuracy, but each value is released with ε·n = 200, and a mean of n rows has √n times less
  noise than a row, so even the mean is protected worse than ε says.
"""

from __future__ import annotations

import math

from splitwiper.config import Noise
from splitwiper.errors import ConfigError
from splitwiper.privacy.stream import check_noise

_DIGITS = 6


def paper(reading: str, *, epsilon: float, nonnegative: bool = True) -> Noise:
    """Return the paper's noise under an inferred reading, 'A' or 'B'; ``nonnegative`` is for a cut behind a ReLU.

    >>> paper("A", epsilon=0.2).reading, scale(paper("A", epsilon=0.2)), scale(paper("B", epsilon=0.2), group=1000)
    ('value', 5.0, 0.005)
    """
    kinds = {"A": "value", "B": "mean"}
    if reading not in kinds:
        raise ConfigError(f"the paper's epsilon has no reading {reading!r} here: take 'A' (per value) or 'B' (mean).")
    clip = 1.0 if nonnegative else 0.5  # values move by at most 1 either way
    return Noise(mechanism="laplace", epsilon=epsilon, clip=clip, reading=kinds[reading], nonnegative=nonnegative)


def sensitivity(noise: Noise) -> float:
    """Return the sensitivity: L1 for Laplace, L2 for Gaussian; for 'mean', that of one row."""
    if not noise.nonnegative:
        return 2 * noise.clip
    if noise.reading != "row":
        return noise.clip
    return 2 * noise.clip if noise.mechanism == "laplace" else math.sqrt(2) * noise.clip


def scale(noise: Noise, *, group: int = 1) -> float:
    """Return the scale of Laplace noise, or the standard deviation of Gaussian noise, on each value.

    Args:
        noise: the settings.
        group: the number of the client's rows with the row's (masked) label, for the reading 'mean'.
    """
    if not noise.is_on:
        return 0.0
    unit = sensitivity(noise) / (group if noise.reading == "mean" else 1)
    return unit / noise.epsilon if noise.mechanism == "laplace" else unit * deviation(noise.epsilon, noise.delta)


def deviation(epsilon: float, delta: float) -> float:
    """Return the deviation of the analytic Gaussian mechanism (Balle and Wang, 2018) for sensitivity 1.

    It is rounded up to six digits: enough noise, and the same with every version of the libraries below.
    """
    check_noise("gaussian")
    from dp_accounting import get_sigma_gaussian

    exact = float(get_sigma_gaussian(epsilon, delta))
    unit = 10.0 ** (math.floor(math.log10(exact)) + 1 - _DIGITS)
    return math.ceil(exact / unit) * unit
