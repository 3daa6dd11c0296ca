"""Descriptions of tensors without their values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from splitwiper.splitting.trees import Leaf


class CutWarning(UserWarning):
    """The cut works, but something about it deserves attention."""


@dataclass(frozen=True)
class TensorSpec:
    """One tensor that crosses the cut.

    Attributes:
        name: Its key in the boundary.
        shape: The shape of one row, without dimension 0.
        dtype: Its element type.
        kind: ``"activation"`` for an output of the cut module, ``"side"`` for a shared input.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    kind: Literal["activation", "side"]

    @property
    def bytes_per_row(self) -> int:
        """Bytes of one row, uncompressed.

        >>> TensorSpec("activation", (64, 8, 8), torch.float32, "activation").bytes_per_row
        16384
        """
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        shape = " x ".join(map(str, self.shape)) or "scalar"
        return f"{self.name} ({shape}, {str(self.dtype).removeprefix('torch.')})"


@dataclass(frozen=True)
class Ghost(Leaf):
    """A tensor with known shape and type only; each size is ``fixed + per_row * rows``."""

    sizes: tuple[tuple[int, int], ...]
    dtype: torch.dtype
    requires_grad: bool = False

    @classmethod
    def between(cls, low: tuple[int, ...], high: tuple[int, ...], rows: int, dtype: torch.dtype) -> Ghost:
        """Derive a ghost from the shapes seen with ``rows`` and with ``rows + 1`` rows."""
        sizes = []
        for fewer, more in zip(low, high, strict=True):
            per_row = more - fewer  # one row more
            sizes.append((fewer - rows * per_row, per_row))
        return cls(tuple(sizes), dtype)

    def shape(self, rows: int) -> tuple[int, ...]:
        """Return the shape for a number of rows."""
        return tuple(fixed + per_row * rows for fixed, per_row in self.sizes)

    @property
    def row_dim(self) -> int | None:
        """The one dimension that counts the rows; None unless there is exactly one."""
        moving = [size for size in self.sizes if size[1]]
        return self.sizes.index((0, 1)) if moving == [(0, 1)] else None


@dataclass(frozen=True)
class Received(Leaf):
    """The place of a boundary tensor; on the server its rows are moved back to dimension ``row_dim``."""

    name: str
    row_dim: int
