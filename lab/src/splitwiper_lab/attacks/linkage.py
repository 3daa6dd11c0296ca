"""Agglomerative clustering of a few hundred points, with pairs that must never be merged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splitwiper.wire.columns import Array


@dataclass(frozen=True)
class Tree:
    """The order in which points were merged.

    Attributes:
        size: the number of points.
        merges: pairs of clusters, each named by its first point, in the order of merging.
        heights: the distance between the clusters of each pair.
        squared: whether heights are sums of squares, which have no upper bound; otherwise they are distances.
    """

    size: int
    merges: tuple[tuple[int, int], ...]
    heights: tuple[float, ...]
    squared: bool

    def cut(self, clusters: int) -> Array:
        """Return the cluster of each point when ``clusters`` are left, or as few as the constraints allow."""
        cluster = np.arange(self.size)
        for first, second in self.merges[: max(0, self.size - max(1, clusters))]:
            cluster[cluster == second] = first
        return np.unique(cluster, return_inverse=True)[1]

    def jump(self) -> int:
        """Return how many clusters were left before the merge with the largest increase in height."""
        # constraints can make a later merge lower than an earlier one; a curve that only rises has one largest jump
        heights = np.maximum.accumulate(np.maximum(np.array(self.heights), 0))
        if len(heights) < 2 or not heights[-1] > 0:
            return self.size - (0 if heights.any() else len(heights))
        if self.squared:
            heights = np.sqrt(heights)
            floor = 0.02 * heights[-1]  # heights below this count as equal
            leaps = (heights[1:] + floor) / (heights[:-1] + floor)
        else:
            leaps = np.diff(heights)
        return self.size - 1 - int(leaps.argmax())


def merge_points(points: Array, weights: Array | None = None, *, cannot: Array | None = None) -> Tree:
    """Merge points by Ward's method: each time, the pair that increases the sum of squares least.

    ``weights`` are how many rows each point stands for, and ``cannot`` marks pairs (points × points) to keep apart.
    """
    weights = np.ones(len(points)) if weights is None else np.maximum(weights.astype(np.float64), 1e-9)
    centred = points.astype(np.float64) - points.mean(axis=0, dtype=np.float64)
    # |a - b|² = |a|² + |b|² - 2ab; rounding may make it a little negative, which no distance is
    squares = (centred**2).sum(1)
    distances = np.maximum(squares[:, None] + squares[None] - 2 * centred @ centred.T, 0)
    # merging clusters of n and m rows raises the sum of squares by nm / (n + m) times their squared distance
    pull = weights[:, None] * weights[None] / (weights[:, None] + weights[None])
    return _merge(distances * pull, weights, ward=True, cannot=cannot)


def merge_distances(distances: Array) -> Tree:
    """Merge by average linkage on a matrix of distances."""
    return _merge(distances.astype(np.float64), np.ones(len(distances)), ward=False)


def _merge(distances: Array, sizes: Array, *, ward: bool, cannot: Array | None = None) -> Tree:
    """Merge the closest pair until one cluster is left or no pair may be merged (Lance and Williams)."""
    distances, sizes = distances.copy(), sizes.astype(np.float64)
    if cannot is not None:
        distances[cannot] = np.inf
    np.fill_diagonal(distances, np.inf)
    merges, heights = [], []
    for _ in range(len(distances) - 1):
        at = int(distances.argmin())
        i, j = sorted(divmod(at, len(distances)))
        height = distances[i, j]
        if not np.isfinite(height):
            break
        a, b = sizes[i], sizes[j]
        # the Lance-Williams update: distances from the merged cluster follow from those of its two parts
        if ward:
            joined = (a + sizes) * distances[i] + (b + sizes) * distances[j] - sizes * height
            joined /= a + b + sizes
        else:
            joined = (a * distances[i] + b * distances[j]) / (a + b)
        distances[i], distances[:, i] = joined, joined
        distances[i, i] = np.inf
        # the merged cluster goes by the name of its first part; the second is never chosen again
        distances[j], distances[:, j] = np.inf, np.inf
        sizes[i] += b
        merges.append((i, j))
        heights.append(float(height))
    return Tree(len(distances), tuple(merges), tuple(heights), ward)
