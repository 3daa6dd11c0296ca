"""Agglomerative clustering of a few hundred points, with pairs that may never come together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splitwiper.wire.columns import Array


@dataclass(frozen=True)
class Tree:
    """The order in which points were merged.

    Attributes:
        size: how many points there were.
        merges: pairs of clusters, each named by its first point, in the order of merging.
        heights: how far apart each pair was.
        squared: whether heights are sums of squares, and have no upper end; otherwise they are distances.
    """

    size: int
    merges: tuple[tuple[int, int], ...]
    heights: tuple[float, ...]
    squared: bool

    def cut(self, clusters: int) -> Array:
        """The cluster of each point when that many are left, or as few as may come together."""
        at = np.arange(self.size)
        for one, other in self.merges[: max(0, self.size - max(1, clusters))]:
            at[at == other] = one
        return np.unique(at, return_inverse=True)[1]

    def jump(self) -> int:
        """How many clusters were left before the merge that was the farthest leap up from the one before it."""
        heights = np.maximum.accumulate(np.maximum(np.array(self.heights), 0))
        if len(heights) < 2 or not heights[-1] > 0:
            return self.size - (0 if heights.any() else len(heights))
        if self.squared:
            heights = np.sqrt(heights)
            floor = 0.02 * heights[-1]  # below this, all are as good as equal
            leaps = (heights[1:] + floor) / (heights[:-1] + floor)
        else:
            leaps = np.diff(heights)
        return self.size - 1 - int(leaps.argmax())


def merge_points(points: Array, weights: Array | None = None, *, cannot: Array | None = None) -> Tree:
    """Ward's method on points: the pair goes together that adds least to the sum of squares.

    Args:
        points: one row per point.
        weights: how many rows a point stands for.
        cannot: a matrix of truth values: pairs that may not come together.
    """
    weights = np.ones(len(points)) if weights is None else np.maximum(weights.astype(np.float64), 1e-9)
    centred = points.astype(np.float64) - points.mean(axis=0, dtype=np.float64)
    squares = (centred**2).sum(1)
    distances = np.maximum(squares[:, None] + squares[None] - 2 * centred @ centred.T, 0)
    pull = weights[:, None] * weights[None] / (weights[:, None] + weights[None])
    return _merge(distances * pull, weights, ward=True, cannot=cannot)


def merge_distances(distances: Array, *, cannot: Array | None = None) -> Tree:
    """Average linkage on a matrix of distances."""
    return _merge(distances.astype(np.float64), np.ones(len(distances)), ward=False, cannot=cannot)


def _merge(distances: Array, sizes: Array, *, ward: bool, cannot: Array | None) -> Tree:
    """Merge the closest pair until one is left, or none may be merged (Lance and Williams)."""
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
        if ward:
            joined = (a + sizes) * distances[i] + (b + sizes) * distances[j] - sizes * height
            joined /= a + b + sizes
        else:
            joined = (a * distances[i] + b * distances[j]) / (a + b)
        distances[i], distances[:, i] = joined, joined
        distances[i, i] = np.inf
        distances[j], distances[:, j] = np.inf, np.inf
        sizes[i] += b
        merges.append((i, j))
        heights.append(float(height))
    return Tree(len(distances), tuple(merges), tuple(heights), ward)
