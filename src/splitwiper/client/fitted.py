"""Every quantity on the client that is fitted to data. Each is refitted on only the surviving rows.

| quantity | fitted by | on |
|---|---|---|
| labels the local head and the shard know | `labels_present` | the slices a stage has seen |
| shift and scale of the inputs | `statistics` | the slices a stage has seen |
| levels of integers, and whatever else a codec fits | `wire.codecs.Fitter` | all surviving rows' activations |
| kinds of a label (`subclass`), and whatever else a mode fits | `masking.modes` | all surviving rows' activations |
| cover rows, and rows of a code (noise, reading `mean`) | `masking.plan`, row counts | all surviving rows |
| row order, batches, steps of the schedule | `content.rows_digest`, row counts | the slices a stage has seen |

Everything else that shapes training (settings, initial weights, the key, the order of a table's named columns) is
fixed in the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from splitwiper.training.cache import Cache
from splitwiper.wire import Label, Shard
from splitwiper.wire.labels import in_order


def labels_present(slices: Sequence[Shard]) -> tuple[Label, ...]:
    """Return the labels that at least one row has."""
    return in_order(chain.from_iterable(part.labels for part in slices))


def statistics(cache: Cache) -> dict[str, tuple[Tensor, ...]]:
    """Return mean and standard deviation of every float input, per feature; a constant feature keeps its scale."""
    out: dict[str, tuple[Tensor, ...]] = {}
    for name in cache.names:
        dtype = next(cache.blocks(name, 1)).dtype
        if dtype.kind != "f":
            continue
        # two passes, since sums of squares would lose the small differences of large values
        mean = sum(block.sum(axis=0, dtype=np.float64) for block in cache.blocks(name)) / len(cache)
        spread = sum(np.square(block - mean).sum(axis=0, dtype=np.float64) for block in cache.blocks(name))
        scale = np.sqrt(spread / len(cache))
        scale = np.where(scale == 0, 1.0, scale)
        out[name] = torch.from_numpy(np.array(mean, dtype)), torch.from_numpy(np.array(scale, dtype))
    return out
