"""Composition of releases, by dp-accounting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from splitwiper.config import Noise
from splitwiper.extras import check_installed
from splitwiper.privacy.calibration import deviation

_ORDERS = [float(order) for order in 1 + np.geomspace(0.0101, 1e5, 200)]
# Points of a privacy loss distribution, whatever its range: at most a second's work, and always an upper bound.
_CELLS = 40_000
# Larger pure epsilons are left to Rényi divergences, which are as tight there and cannot overflow.
_WIDEST = 10_000.0


@dataclass(frozen=True)
class PrivacyLoss:
    """``count`` releases that each lose ``times`` the settings' epsilon (Gaussian noise: shift in deviations)."""

    times: float
    count: int


def compose(noise: Noise, losses: Sequence[PrivacyLoss]) -> tuple[float | None, float]:
    """Return epsilon of all losses together: pure, or None for Gaussian noise; and at the settings' delta.

    Raises:
        ConfigError: dp-accounting is not installed.
    """
    check_installed("dp_accounting", "accounting for noise")
    import dp_accounting

    if noise.mechanism == "gaussian":  # shifts add up as vectors do, and one shift is one Gaussian release
        shift = math.sqrt(sum(loss.count * loss.times**2 for loss in losses)) / deviation(noise.epsilon, noise.delta)
        return None, float(dp_accounting.get_epsilon_gaussian(1 / shift, noise.delta)) if shift else 0.0
    each = [(loss.times * noise.epsilon, loss.count) for loss in losses]
    pure = math.fsum(epsilon * count for epsilon, count in each)
    if not pure:
        return 0.0, 0.0
    bounds = [pure, _renyi(each, noise.delta)]
    if noise.reading != "row" and pure <= _WIDEST:  # a row's L1 bound does not say how its values share the loss
        bounds.append(_distribution(each, noise.delta, pure / _CELLS))
    return pure, min(bounds)


def _renyi(each: Sequence[tuple[float, int]], delta: float) -> float:
    """Compose by Rényi divergences.

    They are convex in the shift, so the worst row has moved in one value: this is valid for rows too.
    """
    from dp_accounting import LaplaceDpEvent, rdp

    accountant = rdp.RdpAccountant(orders=_ORDERS)
    for epsilon, count in each:
        accountant.compose(LaplaceDpEvent(1 / epsilon), count)
    return float(accountant.get_epsilon(delta))


def _distribution(each: Sequence[tuple[float, int]], delta: float, cell: float) -> float:
    """Compose by the distribution of the privacy loss, rounded up to cells."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    total = pld.identity(value_discretization_interval=cell)
    for epsilon, count in each:
        release = pld.from_laplace_mechanism(1 / epsilon, value_discretization_interval=cell)
        total = total.compose(release.self_compose(count))
    return float(total.get_epsilon_for_delta(delta))
