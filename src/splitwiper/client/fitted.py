"""Every quantity on the client that is fitted to data. Each is refitted on only the surviving rows.

| quantity | fitted by | on |
|---|---|---|
| labels the local head and the shard know | `labels_present` | the slices a stage has seen |
| shift and scale of the inputs | `statistics` | the slices a stage has seen |
| ranges of integer codes | `ValueSpread` | all surviving rows' activations |
| kinds of a label, in the mode `subclass` | `masking.modes.subclass` | all surviving rows' activations |
| cover rows, and rows of a code (noise, reading `mean`) | `masking.plan`, row counts | all surviving rows |
| row order, batches, steps of the schedule | `content.rows_digest`, row counts | the slices a stage has seen |

Everything else that shapes training (settings, initial weights, the key, the order of a table's named columns) is
fixed in the context.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from splitwiper.training.cache import Cache
from splitwiper.wire import Column, Label, Shard
from splitwiper.wire.codecs import Ranges, by_channel, channels, fit_range
from splitwiper.wire.labels import in_order

_REACH = {"int8": 12.0, "int4": 5.0}
"""How many deviations from the mean a code's levels reach; values beyond are clipped."""


def labels_present(slices: Sequence[Shard]) -> tuple[Label, ...]:
    """Return the labels that at least one row has."""
    return in_order(label for s in slices for label in s.labels)


def statistics(cache: Cache) -> dict[str, tuple[Tensor, ...]]:
    """Return mean and standard deviation of every float input, per feature; a constant feature keeps its scale."""
    out: dict[str, tuple[Tensor, ...]] = {}
    for name in cache.names:
        kind = next(cache.blocks(name, 1)).dtype
        if kind.kind != "f":
            continue
        mean = sum(block.sum(axis=0, dtype=np.float64) for block in cache.blocks(name)) / len(cache)
        spread = sum(np.square(block - mean).sum(axis=0, dtype=np.float64) for block in cache.blocks(name))
        scale = np.sqrt(spread / len(cache))
        scale = np.where(scale == 0, 1.0, scale)
        out[name] = tuple(torch.from_numpy(np.asarray(v, kind).copy()) for v in (mean, scale))
    return out


class ValueSpread:
    """Range, mean and deviation of every channel of a column, accumulated batch by batch."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self._count = 0
        self._sums = torch.zeros(2, channels(column), dtype=torch.float64)  # of values, of squares
        self._low = torch.full((channels(column),), torch.inf, dtype=torch.float32)
        self._high = -self._low

    def add(self, values: Tensor) -> None:
        """Add a batch."""
        table, every = by_channel(values.float(), self._column), (0, 1, 3)  # all but the channels
        wide = table.double()
        self._sums += torch.stack([wide.sum(dim=every), wide.square().sum(dim=every)]).cpu()
        self._low = torch.minimum(self._low, table.amin(dim=every).cpu())
        self._high = torch.maximum(self._high, table.amax(dim=every).cpu())
        self._count += table.numel() // table.shape[2]

    def ranges(self, codec: str) -> Ranges:
        """Return ranges that cover all values, but not so wide that a few outliers cost all others their precision."""
        mean, square = self._sums / self._count
        reach = _REACH[codec] * (square - mean.square()).clamp(min=0).sqrt()
        low, high = torch.maximum(self._low, (mean - reach).float()), torch.minimum(self._high, (mean + reach).float())
        return fit_range(low, high, codec)
