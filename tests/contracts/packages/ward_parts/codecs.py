"""A codec with one byte per value, on a logarithmic scale that is fitted to the survivors."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from splitwiper.wire import Column
from splitwiper.wire.codecs import Fitted


class MeanSize:
    """Fits the mean absolute value of a column."""

    def __init__(self) -> None:
        self._sum, self._count = torch.zeros((), dtype=torch.float64), 0

    def add(self, values: Tensor) -> None:
        self._sum += values.double().abs().sum().cpu()
        self._count += values.numel()

    def fitted(self) -> dict[str, Tensor]:
        mean = (self._sum / max(1, self._count)).float()
        return {"size": torch.where(mean > 0, mean, torch.ones_like(mean)).reshape(1)}


class Logarithmic:
    """Keeps the sign and 128 sizes, up to ``reach`` times the mean; larger values are clipped."""

    def __init__(self, reach: float = 100.0) -> None:
        self._rate = 127 / math.log1p(reach)

    def stored(self, column: Column) -> Column:
        return Column(column.name, "U8", (math.prod(column.shape),))

    def shapes(self, column: Column) -> Mapping[str, tuple[int, ...]]:
        return {"size": (1,)}

    def fitter(self, column: Column) -> MeanSize:
        return MeanSize()

    def encode(self, values: Tensor, column: Column, fitted: Fitted) -> Tensor:
        flat = values.float().reshape(len(values), -1) / fitted["size"].to(values.device)
        sizes = (flat.abs().log1p() * self._rate).round_().clamp_(0, 127).to(torch.uint8)
        return sizes | ((flat < 0).to(torch.uint8) << 7)

    def decode(self, values: Tensor, column: Column, fitted: Fitted, dtype: torch.dtype) -> Tensor:
        sizes = ((values & 127).float() / self._rate).expm1() * fitted["size"]  # rows × 1, or 1 × 1
        signed = torch.where(values > 127, -sizes, sizes)
        return signed.to(dtype).reshape(len(values), *column.shape)
