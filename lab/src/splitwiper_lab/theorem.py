"""Theorem 1 in numbers: how far apart posteriors are, compared with the paper's e^ε.

The proof (appendix A) starts from ``e^-ε ≤ Pr[V_t | V*_a] / Pr[V_t | V*_b] ≤ e^ε`` for any two noisy copies and any
original, and concludes that "same original" has probabilities within e^2ε. But differential privacy bounds likelihoods,
not posteriors, and only for the unit that ε is stated for. Here the posterior is computed exactly from Laplace noise of
scale 1/ε under a uniform prior over Q originals, t at one end of the range and all others at the other:

- one value of range 1 and Q = 2: the step holds, with equality;
- Q > 2: odds are bounded by e^ε either way, the ratio of posteriors by e^2ε; so the step fails even for one value;
- rows of d values, or means over n rows: the ratio can reach e^(d·ε) and e^(n·ε), and most draws are beyond e^ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln, kve

from splitwiper.errors import ConfigError
from splitwiper.wire.columns import Array

_MOST_ROWS = 150
"""The most rows in a mean: with more, the Bessel function in its density overflows."""


@dataclass(frozen=True, kw_only=True)
class Inequality:
    """One case. Ratios are natural logarithms: the paper claims ``epsilon`` for the step, and twice that for pairs."""

    case: str
    labels: int
    values: int
    rows: int
    reach: float
    epsilon: float
    supremum: float
    """The largest possible ratio of posteriors."""
    median: float
    largest: float
    """The largest ratio over drawn copies: a of t, b of another original."""
    outside: float
    """The share of draws beyond the claimed step."""
    pairs: float
    """Median over draws of log Pr[same original: two copies of t] / Pr[same original: one of t, one of another]."""
    step_holds: bool
    pairs_hold: bool
    """Whether every draw is within the claimed 2ε."""


def theorem_table(
    epsilon: float, *, labels: int = 10, values: int = 64, rows: int = 100, draws: int = 2000, seed: int = 0
) -> list[Inequality]:
    """Check the claim's step and conclusion, case by case.

    Raises:
        ConfigError: a number is out of range.
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ConfigError(f"epsilon = {epsilon!r} is out of range: give a number > 0.")
    for name, value, low, high in (
        *(("labels", labels, 2, 10**6), ("values", values, 1, 10**5)),
        *(("rows", rows, 1, _MOST_ROWS), ("draws", draws, 1, 10**6)),
    ):
        if not low <= value <= high:
            raise ConfigError(f"{name} = {value!r} is out of range: give a number ≥ {low} and ≤ {high}.")
    cases = (
        ("one value, two labels", 2, 1, 1, 1.0),
        (f"one value, {labels} labels", labels, 1, 1, 1.0),
        ("one value, not clipped: range 5", 2, 1, 1, 5.0),
        (f"a row of {values} values", 2, values, 1, 1.0),
        (f"a value's mean over {rows} rows", 2, 1, rows, 1.0),
        (f"a row's mean over {rows} rows, {labels} labels", labels, values, rows, 1.0),
    )
    return [_check(epsilon, *case, draws=draws, seed=[seed, at]) for at, case in enumerate(cases)]


def _check(
    epsilon: float, case: str, labels: int, values: int, rows: int, reach: float, *, draws: int, seed: list[int]
) -> Inequality:
    random = np.random.default_rng(seed)
    first, second = (_gain(random, epsilon, values, rows, reach, draws) for _ in range(2))  # two copies of t
    other = -_gain(random, epsilon, values, rows, reach, draws)  # a copy of another original, by symmetry
    ratios = np.abs(_log_posterior(first, labels) - _log_posterior(other, labels))
    pairs = _log_same(first, second, labels) - _log_same(first, other, labels)
    most = epsilon * reach * values * rows
    supremum = float(_log_posterior(np.array(most), labels) - _log_posterior(np.array(-most), labels))
    return Inequality(
        case=case,
        labels=labels,
        values=values,
        rows=rows,
        reach=reach,
        epsilon=epsilon,
        supremum=supremum,
        median=float(np.median(ratios)),
        largest=float(ratios.max()),
        outside=float((ratios > epsilon * (1 + 1e-9)).mean()),
        pairs=float(np.median(pairs)),
        step_holds=supremum <= epsilon * (1 + 1e-9),
        pairs_hold=bool((np.abs(pairs) <= 2 * epsilon * (1 + 1e-9)).all()),
    )


def _gain(random: Any, epsilon: float, values: int, rows: int, reach: float, draws: int) -> Array:
    """Draw log-likelihoods of t minus those of the others, for copies (or means of copies) of t, which is at 0."""
    total = np.zeros(draws)
    for _ in range(values):
        sums = random.gamma(rows, size=draws) - random.gamma(rows, size=draws)  # Laplace sums, in scales
        total += _log_density(sums, rows) - _log_density(sums - rows * reach * epsilon, rows)
    return total


def _log_density(sums: Array, rows: int) -> Array:
    """Return the log-density of a sum of ``rows`` draws of Laplace noise of scale 1: a Bessel function."""
    far = np.abs(sums)
    if rows == 1:
        return np.asarray(-far - math.log(2))
    order, far = rows - 0.5, np.maximum(far, 0.5)  # flat near 0, where the function overflows
    scaled = np.log(kve(order, far)) - far
    return np.asarray(order * np.log(far) + scaled - gammaln(rows) - order * math.log(2) - 0.5 * math.log(math.pi))


def _log_posterior(gain: Array, labels: int) -> Array:
    """Return the log-probability of t, if all other labels are equally far."""
    return np.asarray(-np.logaddexp(0, math.log(labels - 1) - gain))


def _log_same(one: Array, two: Array, labels: int) -> Array:
    """Return the log-probability that two copies have one original: the sum over originals of posteriors' products."""
    first, second = _log_posterior(one, labels), _log_posterior(two, labels)
    others = math.log(labels - 1) + (first - one) + (second - two)  # the labels but t have equal posteriors
    return np.asarray(np.logaddexp(first + second, others))
