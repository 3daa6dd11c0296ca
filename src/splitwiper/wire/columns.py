"""The columns of a shard: the tensors of one row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"}
DTYPES |= {"U8": "u1", "BOOL": "?"}
"""Dtypes of columns as the cut sends them: NumPy's, by the names that safetensors gives them."""
FLOATS = ("F64", "F32", "F16")
"""Dtypes of columns that codecs encode; the others are sent as they are."""
STORED = DTYPES | {"BF16": "<i2"}
"""Dtypes that a shard may store. NumPy has no bfloat16: its bits are read as integers, and only a codec makes them."""


@dataclass(frozen=True)
class Column:
    """One tensor of a row: its name, safetensors dtype, and shape without the row dimension."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        """Bytes per row."""
        return math.prod(self.shape) * np.dtype(STORED[self.dtype]).itemsize

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{list(self.shape)}"


def torch_dtype(kind: np.dtype[Any]) -> torch.dtype:
    """Return the torch dtype of a NumPy one."""
    return torch.from_numpy(np.empty(0, kind)).dtype


TORCH = {name: torch_dtype(np.dtype(kind)) for name, kind in DTYPES.items()} | {"BF16": torch.bfloat16}
"""Dtypes of tensors by the names that safetensors gives them."""
