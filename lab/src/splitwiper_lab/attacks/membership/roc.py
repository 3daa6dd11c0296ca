"""The ROC curve of scores, and the area under it, with ties counted half.

Intervals are DeLong's (DeLong, DeLong and Clarke-Pearson, Biometrics 1988), at 95 %. They cover the draw of rows, not
the randomness of training: another seed gives another model.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from splitwiper.wire.columns import Array

Z = 1.959963984540054
"""Standard errors on either side that cover 95 % of a normal distribution."""


def placements(hits: Array, alarms: Array) -> tuple[Array, Array]:
    """Return DeLong's components: per unlearned row the share of outsiders below it, per outsider the share above it.

    Ties count half. The mean of either is the area under the ROC curve.
    """
    ranks = rankdata(np.concatenate([hits, alarms]))
    # a rank among all, minus the rank among one's own kind, counts the rows of the other kind below
    below = (ranks[: len(hits)] - rankdata(hits)) / len(alarms)
    above = 1 - (ranks[len(hits) :] - rankdata(alarms)) / len(hits)
    return below, above


def auc(hits: Array, alarms: Array) -> float:
    """Return the area under the ROC curve: the chance that an unlearned row outscores an outsider, ties counted half.

    >>> auc(np.array([3.0, 2.0]), np.array([2.0, 1.0]))
    0.875
    """
    return float(placements(hits, alarms)[0].mean())


def auc_interval(hits: Array, alarms: Array) -> tuple[float, float]:
    """Return the 95 % confidence interval of the area under the ROC curve.

    Where scores separate all rows, DeLong's interval has zero width, however few rows there are. Then the interval ends
    where that many independent pairs of rows would all be in order with a chance of 2.5 %.
    """
    area, error = auc(hits, alarms), standard_error(*placements(hits, alarms))
    if area in (0.0, 1.0):
        reach = 0.025 ** (1 / min(len(hits), len(alarms)))
        return (reach, 1.0) if area else (0.0, 1 - reach)
    return max(0.0, area - Z * error), min(1.0, area + Z * error)


def standard_error(below: Array, above: Array) -> float:
    """Return DeLong's standard error from components; infinite if either kind has fewer than two rows."""
    if min(len(below), len(above)) < 2:
        return float("inf")
    # the variance of a mean over either kind; the kinds are drawn independently, so variances add up
    return float(np.sqrt(below.var(ddof=1) / len(below) + above.var(ddof=1) / len(above)))


def tpr_at(hits: Array, alarms: Array, rate: float) -> float:
    """Return the share of unlearned rows found while at most the share ``rate`` of outsiders is called unlearned.

    >>> tpr_at(np.array([4.0, 3.0, 1.0]), np.array([3.0, 2.0, 1.0, 0.0]), 0.25)
    0.6666666666666666
    """
    allowed = int(np.floor(rate * len(alarms) + 1e-9))
    if allowed >= len(alarms):
        return 1.0
    # one outsider more than allowed: the threshold must be above this score and all its ties
    first_refused = np.sort(alarms)[::-1][allowed]
    return float((hits > first_refused).mean())
