"""K-means in torch, and three ways to estimate the number of clusters: elbow, silhouette, and the gap statistic.

Starts are drawn by k-means++, and the best of several runs is kept. Memory is bounded, results are repeatable by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from splitwiper.wire.columns import Array

_BLOCK = 1 << 25
"""Distances computed per block."""
_CANDIDATES = 32
"""The most numbers of clusters that are tried."""


@dataclass(frozen=True)
class Clusters:
    """A clustering: the cluster of each point, and one row per cluster."""

    labels: Tensor
    centres: Tensor
    inertia: float
    """The sum of squared distances to the centres."""


def kmeans(points: Tensor, k: int, *, seed: int = 0, restarts: int = 4, iterations: int = 50) -> Clusters:
    """Cluster points, one per row, into ``k`` clusters, or as many as there are points.

    The best of several runs is returned: the one with the lowest inertia. A run takes ``iterations`` at most.
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


def candidates(points: int) -> list[int]:
    """Return numbers of clusters worth trying: from 2 to one less than the points, thinned where there are many."""
    spread = np.linspace(2, points - 1, max(0, min(_CANDIDATES, points - 2)))
    numbers: list[int] = np.unique(spread.round()).astype(int).tolist()
    return numbers


def elbow(points: Tensor, *, seed: int = 0, restarts: int = 4) -> int:
    """Return the number where the inertia curve bends most: the point farthest below the chord between its ends."""
    tried = [1, *candidates(len(points))]
    if len(tried) < 3:
        return len(points)
    curve = _inertias(points, tried, seed=seed, restarts=restarts)
    if not curve[0] > 0:
        return 1
    x = (np.array(tried) - tried[0]) / (tried[-1] - tried[0])
    y = (curve - curve[-1]) / max(curve[0] - curve[-1], 1e-30)
    # the chord runs from (0, 1) to (1, 0), so 1 - x - y is proportional to the distance below it
    return tried[int((1 - x - y).argmax())]


def _inertias(points: Tensor, tried: Sequence[int], *, seed: int, restarts: int, iterations: int = 50) -> Array:
    """Return the inertia of the points for each number of clusters."""
    return np.array([kmeans(points, k, seed=seed, restarts=restarts, iterations=iterations).inertia for k in tried])


def silhouette(points: Tensor, *, seed: int = 0, restarts: int = 4) -> int:
    """Return the number of clusters with the highest mean silhouette."""
    tried = candidates(len(points))
    if not tried:
        return len(points)
    distances = torch.cdist(points.double(), points.double()).cpu().numpy()
    scores = []
    for k in tried:
        labels = kmeans(points, k, seed=seed, restarts=restarts).labels
        scores.append(_silhouette(distances, labels.cpu().numpy()))
    return tried[int(np.argmax(scores))]


def _silhouette(distances: Array, labels: Array) -> float:
    """Return the mean silhouette of points, from their distances (points × points) and clusters."""
    member = labels[:, None] == np.unique(labels)[None]  # points × clusters
    sizes = member.sum(0)
    summed = distances @ member  # points × clusters: total distance of a point to a cluster
    # a point's distance to itself is 0, so its own cluster's mean is over the others in it
    own = (summed * member).sum(1) / np.maximum(sizes[member.argmax(1)] - 1, 1)
    other = np.where(member, np.inf, summed / sizes).min(1)
    alone = sizes[member.argmax(1)] == 1
    score = (other - own) / np.maximum(np.maximum(own, other), 1e-30)
    return float(np.where(alone | ~np.isfinite(score), 0, score).mean())  # 0 by definition for a point alone


def gap(points: Tensor, *, seed: int = 0, restarts: int = 4) -> int:
    """Apply the gap statistic (Tibshirani, Walther and Hastie): the smallest number within the error of the best one.

    The references are uniform in the points' bounding box; callers turn the points along their main axes first. The
    original rule, "as good as the next", stops at one cluster where points are few and axes are many.
    """
    tried = [1, *candidates(len(points))]
    if len(tried) < 3:
        return len(points)
    low, high = points.min(0).values, points.max(0).values
    generator = torch.Generator(points.device).manual_seed(seed)
    references = 2 * restarts
    boxes = []
    for _ in range(references):
        uniform = torch.rand(points.shape, generator=generator, device=points.device, dtype=points.dtype)
        boxes.append(low + (high - low) * uniform)
    floor = 1e-6 * max(kmeans(points, 1, restarts=1).inertia, 1e-30)  # for identical points: log(0)

    def logs(cloud: Tensor, runs: int) -> Array:
        return np.log(np.maximum(_inertias(cloud, tried, seed=seed, restarts=runs, iterations=20), floor))

    expected = np.stack([logs(box, 1) for box in boxes])  # references × numbers tried
    gaps = expected.mean(0) - logs(points, restarts)
    error = expected.std(0) * np.sqrt(1 + 1 / references)  # the references' own error is part of it
    best = int(gaps.argmax())
    return tried[int(np.flatnonzero(gaps >= gaps[best] - error[best])[0])]


METHODS: dict[str, Callable[..., int]] = {"elbow": elbow, "silhouette": silhouette, "gap": gap}
"""Methods of choosing the number of clusters, by name."""
