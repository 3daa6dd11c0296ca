"""K-means in torch: k-means++ starts, restarts, bounded memory, the same on CPU and GPU, repeatable by seed."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

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
    best = _lloyd(points, _starts(points, k, generator), iterations)
    for _ in range(restarts - 1):
        run = _lloyd(points, _starts(points, k, generator), iterations)
        best = min(best, run, key=attrgetter("inertia"))
    return best


def _starts(points: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Choose centres by k-means++: draw each with probability proportional to the squared distance to those before."""
    chosen = [int(torch.randint(len(points), (1,), generator=generator, device=points.device))]
    nearest = torch.full((len(points),), float("inf"), device=points.device, dtype=points.dtype)
    for _ in range(k - 1):
        nearest = torch.minimum(nearest, (points - points[chosen[-1]]).square().sum(1))
        # where all distances are 0 there are fewer different points than centres: any point will do
        spread = nearest if bool(nearest.sum() > 0) else torch.ones_like(nearest)
        chosen.append(_drawn(spread, generator))
    return points[chosen]


def _drawn(weights: Tensor, generator: torch.Generator) -> int:
    """Draw an index by weight; unlike torch.multinomial, this works for any number of weights."""
    summed = weights.double().cumsum(0)
    at = torch.rand((), generator=generator, device=weights.device, dtype=torch.float64) * summed[-1]
    return min(int(torch.searchsorted(summed, at, right=True)), len(weights) - 1)


def _lloyd(points: Tensor, centres: Tensor, iterations: int) -> Clusters:
    """Move centres to their points' means until nearly no point changes its cluster (Lloyd's algorithm)."""
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
    labels, squares = [], []
    for part in points.split(max(1, _BLOCK // len(centres))):  # bounds the memory for points × centres
        nearest = torch.cdist(part, centres).square().min(dim=1)
        labels.append(nearest.indices)
        squares.append(nearest.values)
    return torch.cat(labels), torch.cat(squares)


def means(points: Tensor, labels: Tensor, count: int, *, empty: Tensor | None = None) -> Tensor:
    """Return the mean of each cluster's points; an empty cluster gets its row of ``empty``, or zeros."""
    sums = torch.zeros(count, points.shape[1], device=points.device, dtype=points.dtype)
    step = max(1, _BLOCK // count)
    for part, at in zip(points.split(step), labels.split(step), strict=True):  # a matrix product sums in a fixed order
        sums += functional.one_hot(at, count).to(points.dtype).T @ part
    sizes = torch.bincount(labels, minlength=count).to(points.dtype)[:, None]
    mean = sums / sizes.clamp_min(1)
    return mean if empty is None else torch.where(sizes > 0, mean, empty)
