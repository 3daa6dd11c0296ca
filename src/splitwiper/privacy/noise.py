"""Clipping and noise on activations, block by block (Algorithm 4, line 6: ``V* = V + DP(ε)``).

Only float columns are clipped and get noise. **Integer and boolean columns**, such as an attention mask, pass
unchanged: nothing protects them.

Notes:
    The half that computes the activations was trained on the rows, without noise. Epsilon holds for a row's own
    activations given the half; what other rows' activations reveal of this row through the half is not covered.

    Noise in floating point is not the noise of theory; see `splitwiper.privacy.sampling`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from splitwiper.config import Noise
from splitwiper.errors import DataError
from splitwiper.privacy.calibration import scale
from splitwiper.privacy.clipping import clip_rows, row_factors
from splitwiper.privacy.sampling import SAMPLERS, Scratch
from splitwiper.privacy.sources import NoiseSource
from splitwiper.seeding import Part

BLOCK = 1 << 18
"""Values per block of noise, so that memory is bounded and a block stays in the processor's cache."""
# The same on a GPU, where a block must be large enough to be worth its kernel launches.
_GPU_BLOCK = 1 << 22
_GRID = 11  # sums are rounded to multiples of 2⁻¹¹ of the next power of two above the scale


def protect(
    boundary: Mapping[str, Tensor], noise: Noise, source: NoiseSource, *, group: int | Tensor = 1
) -> dict[str, Tensor]:
    """Clip a batch of activations and add noise, so that it may cross the cut.

    Noise depends only on the source's stream and a row's place or content, so batches may be cut anywhere. Random
    words are made on the CPU, and turned into noise on the activations' device.

    Args:
        boundary: named tensors with equal numbers of rows. Check that they are finite first: an infinity is clipped.
        noise: the settings.
        source: the source of the rows' random words.
        group: the number of rows with a row's masked label, for the reading 'mean': one number, or one per row.

    Raises:
        DataError: columns differ in rows, or the source or ``group`` does not fit them.
    """
    if not noise.is_on:
        return dict(boundary)
    counts = {len(values) for values in boundary.values()}
    if len(counts) != 1:
        raise DataError(f"columns have {sorted(counts)} rows: a batch needs at least one column, and as many of each.")
    source.check(*counts)
    scales = _scales(noise, group, *counts)
    floats = {name: values for name, values in boundary.items() if values.is_floating_point()}
    factors = row_factors(floats, noise) if noise.reading == "row" and floats else None
    named = _name(noise, group)
    out = dict(boundary)
    for name, values in floats.items():
        out[name] = _noisy(values, noise, source, [*named, name], scales, factors)
    return out


def _name(noise: Noise, group: int | Tensor) -> list[Part]:
    """Name the part of a stream for these settings: noise of two scales from the same words would reveal the value."""
    numbers = map(repr, (noise.epsilon, noise.delta, noise.clip, noise.nonnegative))
    return [noise.mechanism, noise.reading, *numbers, "" if isinstance(group, Tensor) else group]


def _scales(noise: Noise, group: int | Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Return scale and grid of the noise, as float32: one, or one per row (rows × 1)."""
    sizes = group.cpu().numpy() if isinstance(group, Tensor) else np.array([group])
    if sizes.shape not in ((1,), (rows,)) or sizes.dtype.kind != "i" or (sizes < 1).any():
        raise DataError(f"group must be a whole number ≥ 1, or one for each of the {rows} rows; it is {group!r}.")
    scales = np.asarray(scale(noise) / (sizes if noise.reading == "mean" else np.ones(1)), np.float32)[:, None]
    grid = np.ldexp(np.float32(1), np.frexp(scales)[1] - _GRID)  # a power of two: dividing by it is exact
    return torch.from_numpy(scales), torch.from_numpy(grid)


def _noisy(
    values: Tensor,
    noise: Noise,
    source: NoiseSource,
    name: list[Part],
    scales: tuple[Tensor, Tensor],
    factors: Tensor | None,
) -> Tensor:
    width = math.prod(values.shape[1:])
    flat = values.reshape(len(values), width)
    out = torch.empty(flat.shape, dtype=torch.float32, device=values.device)
    step = max(1, (BLOCK if values.device.type == "cpu" else _GPU_BLOCK) // max(1, width))
    scratch, draw = Scratch(min(step, len(flat)), width, values.device), SAMPLERS[noise.mechanism]
    scales = scales[0].to(values.device), scales[1].to(values.device)
    for first in range(0, len(flat), step):
        rows = slice(first, min(first + step, len(flat)))
        size, grid = scales if len(scales[0]) == 1 else (scales[0][rows], scales[1][rows])
        # The order matters: noise is added to clipped values, or it would not cover them; and the sum is rounded to a
        # grid that is the same for every value, or its low bits would reveal the value (see `sampling`).
        drawn = draw(source, name, first, scratch.of(rows.stop - first)).mul_(size)
        clipped = clip_rows(flat[rows], noise, factors[rows] if factors is not None else None, out=out[rows])
        clipped.add_(drawn).mul_(1 / grid).round_().mul_(grid)
    return out.reshape(values.shape).to(values.dtype)
