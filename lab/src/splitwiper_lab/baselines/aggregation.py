"""Φ: how the server combines the gradients of several clients into one gradient of its weights (Section 2.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from splitwiper.errors import ConfigError, nearest

Gradients = Sequence[Tensor]
"""One tensor per parameter of the server half."""
Phi = Callable[[Sequence[Gradients], Sequence[int]], Gradients]
"""Maps the clients' gradients, and the number of rows behind each, to the gradient to apply."""


def mean(rows: Sequence[int]) -> list[float]:
    """Weigh all clients equally."""
    return [1 / len(rows)] * len(rows)


def by_rows(rows: Sequence[int]) -> list[float]:
    """Weigh clients by their numbers of rows.

    >>> by_rows([30, 10])
    [0.75, 0.25]
    """
    total = sum(rows)
    return [count / total for count in rows]


WEIGHTS: dict[str, Callable[[Sequence[int]], list[float]]] = {"mean": mean, "rows": by_rows}
"""Aggregations that only weigh clients: one backward pass computes them."""


def weighing(aggregate: str | Phi) -> Callable[[Sequence[int]], list[float]] | None:
    """Return the function that weighs clients; None for a custom Φ.

    Raises:
        ConfigError: there is no such aggregation.
    """
    if callable(aggregate):
        return None
    if not isinstance(aggregate, str) or aggregate not in WEIGHTS:
        hint = nearest(str(aggregate), WEIGHTS) or f" Known are {', '.join(WEIGHTS)}, or a function."
        raise ConfigError(f"aggregate = {aggregate!r} is not an aggregation.{hint}")
    return WEIGHTS[aggregate]
