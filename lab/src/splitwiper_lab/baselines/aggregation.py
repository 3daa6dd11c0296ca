"""Φ: how the server makes one gradient of its weights from those of several clients (Section 2.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from splitwiper.errors import ConfigError, nearest

Gradients = Sequence[Tensor]
"""One tensor per parameter of the server half."""
Phi = Callable[[Sequence[Gradients], Sequence[int]], Gradients]
"""From clients' gradients, and how many rows each stands for, to the one that is applied."""


def mean(rows: Sequence[int]) -> list[float]:
    """Every client counts the same."""
    return [1 / len(rows)] * len(rows)


def by_rows(rows: Sequence[int]) -> list[float]:
    """Every row counts the same.

    >>> by_rows([30, 10])
    [0.75, 0.25]
    """
    return [count / sum(rows) for count in rows]


WEIGHTS: dict[str, Callable[[Sequence[int]], list[float]]] = {"mean": mean, "rows": by_rows}
"""Aggregations that weigh clients: one backward pass computes them."""


def weighing(aggregate: str | Phi) -> Callable[[Sequence[int]], list[float]] | None:
    """The weights an aggregation gives to clients; None where it is a function of one's own.

    Raises:
        ConfigError: there is no such aggregation.
    """
    if callable(aggregate):
        return None
    if not isinstance(aggregate, str) or aggregate not in WEIGHTS:
        hint = nearest(str(aggregate), WEIGHTS) or f" Known are {', '.join(WEIGHTS)}, or a function."
        raise ConfigError(f"aggregate = {aggregate!r} is no aggregation.{hint}")
    return WEIGHTS[aggregate]
