"""Clipping to the bound that noise is scaled to. Exact arithmetic, so that a row's bits do not depend on its batch."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from splitwiper.config import Noise

# Norms are summed in whole numbers of 2⁻⁴⁰: sums of floats would depend on their order.
_ONE = 2.0**40
# Rows are scaled slightly below the bound, so that no rounding lifts them above it.
_SAFE = 1 - 2.0**-20
_BLOCK = 1 << 18  # values at a time, so that a block stays in the processor's cache


def clip_rows(values: Tensor, noise: Noise, factors: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """Clip rows × values as float32, each value to its bounds; then multiply each row by its factor, if given."""
    low = 0.0 if noise.nonnegative else -noise.clip
    clipped = torch.clamp(values.to(torch.float32), low, noise.clip, out=out)
    return clipped if factors is None else clipped.mul_(factors)


def row_factors(columns: Mapping[str, Tensor], noise: Noise) -> Tensor:
    """Return each row's factor that brings its norm over all columns down to the bound: rows × 1, at most 1.

    Values are clipped to the bound first: a row within it has none beyond.
    """
    # Whole numbers, because sums of floats depend on their order, and so a row's bits on the size of its batch. Each is
    # rounded up: a norm that is too large by a rounding clips a little more, which protects; too small would not.
    first = next(iter(columns.values()))
    total = torch.zeros(len(first), dtype=torch.int64, device=first.device)
    for values in columns.values():
        flat = values.reshape(len(values), math.prod(values.shape[1:]))  # rows × values
        step = max(1, _BLOCK // max(1, flat.shape[1]))
        for start in range(0, len(flat), step):
            part = clip_rows(flat[start : start + step], noise).mul_(1 / noise.clip)
            part = part.abs_() if noise.mechanism == "laplace" else part.square_()
            total[start : start + step] += part.mul_(_ONE).ceil_().to(torch.int64).sum(dim=1)
    norm = total.to(torch.float64) / _ONE
    norm = norm if noise.mechanism == "laplace" else norm.sqrt()
    return torch.where(norm > _SAFE, _SAFE / norm.clamp(min=_SAFE), 1.0).to(torch.float32)[:, None]
