"""K-means in torch: k-means++ starts, restarts, bounded memory, the same on CPU and GPU, repeatable by seed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

_BLOCK = 1 << 25
"""Distances computed per block."""


@dataclass(frozen=True)
class Clusters:
    """The best clustering of several runs.

    Attributes:
        labels: the cluster of each point.
        centres: one row per cluster.
        inertia: sum of squared distances to the centres.
    """

    labels: Tensor
    centres: Tensor
    inertia: float


def kmeans(points: Tensor, k: int, *, seed: int = 0, restarts: int = 4, iterations: int = 50) -> Clusters:
    """Cluster the rows of a matrix.

    Args:
        points: one row per point.
        k: the number of clusters, reduced to the number of points if necessary.
        seed: the seed of the k-means++ starts.
        restarts: the number of runs; the one with the lowest inertia is returned.
        iterations: the most iterations of a run.
    """
    k = max(1, min(k, len(points)))
    generator = torch.Generator(points.device).manual_seed(seed)
    runs = (_lloyd(points, _starts(points, k, generator), iterations) for _ in range(max(1, restarts)))
    return min(runs, key=lambda run: run.inertia)


def _starts(points: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Choose centres by k-means++: draw each with probability proportional to the squared distance to those before."""
    first = int(torch.randint(len(points), (1,), generator=generator, device=points.device))
    chosen = [first]
    nearest = torch.full((len(points),), float("inf"), device=points.device, dtype=points.dtype)
    for _ in range(k - 1):
        nearest = torch.minimum(nearest, (points - points[chosen[-1]]).square().sum(1))
        spread = nearest if bool(nearest.sum() > 0) else torch.ones_like(nearest)
        chosen.append(_drawn(spread, generator))
    return points[chosen]


def _drawn(weights: Tensor, generator: torch.Generator) -> int:
    """Draw an index by weight; unlike torch.multinomial, this works for any number of weights."""
    summed = weights.double().cumsum(0)
    at = torch.rand((), generator=generator, device=weights.device, dtype=torch.float64) * summed[-1]
    return min(int(torch.searchsorted(summed, at, right=True)), len(weights) - 1)


def _lloyd(points: Tensor, centres: Tensor, iterations: int) -> Clusters:
    labels, nearest = assigned(points, centres)
    for _ in range(iterations):
        centres = means(points, labels, len(centres), empty=centres)
        moved, nearest = assigned(points, centres)
        settled = int((moved != labels).sum()) * 1000 <= len(labels)  # below a thousand points: until none moves
        labels = moved
        if settled:
            break
    return Clusters(labels, centres, float(nearest.double().sum()))


def assigned(points: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest centre of each point, and the squared distance to it."""
    step = max(1, _BLOCK // len(centres))
    found = [torch.cdist(part, centres).square().min(dim=1) for part in points.split(step)]
    return torch.cat([f.indices for f in found]), torch.cat([f.values for f in found])


def means(points: Tensor, labels: Tensor, count: int, *, empty: Tensor | None = None) -> Tensor:
    """Return the mean of each cluster's points; an empty cluster gets its row of ``empty``, or zeros."""
    sums = torch.zeros(count, points.shape[1], device=points.device, dtype=points.dtype)
    step = max(1, _BLOCK // count)
    for part, at in zip(points.split(step), labels.split(step), strict=True):  # a matrix product sums in a fixed order
        sums += functional.one_hot(at, count).to(points.dtype).T @ part
    sizes = torch.bincount(labels, minlength=count).to(points.dtype)[:, None]
    out = sums / sizes.clamp_min(1)
    return out if empty is None else torch.where(sizes > 0, out, empty)
