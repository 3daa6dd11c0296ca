"""Estimate the number of clusters in three ways: elbow, silhouette, and the gap statistic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.kmeans import kmeans

_CANDIDATES = 32


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
