"""Values as arrays; values whose numbers an array would not hold, or would hold wrongly, are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from splitwiper.errors import DataError
from splitwiper.wire.columns import Array

_NUMPY_LACKS = (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)


def as_array(values: Any, subject: str) -> Array:
    """Return values (an array, a tensor, a table or lists) as an array; messages call them ``subject``.

    Raises:
        DataError: values are missing, or the kind of tensor has no array form; the message says how to make one.
    """
    if isinstance(values, Tensor):
        return _of_tensor(values, subject)
    parts = values if isinstance(values, list | tuple) else [values]
    if any(map(np.ma.is_masked, parts)):
        raise DataError(
            f"{subject} are masked, and an array has no masks: the values below them would be learned. Drop the rows "
            "with masked values, or fill them in (values.filled(…))."
        )
    if any(isinstance(part, Tensor) for part in parts):
        values = [as_array(part, subject) for part in parts]
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as problem:
        raise DataError(f"{subject} make no array ({problem}): give rows of numbers, all of one shape.") from problem


def _of_tensor(values: Tensor, subject: str) -> Array:
    if values.is_meta:
        raise DataError(f"{subject} are on the meta device, where tensors have no values: give the data itself.")
    kind = ""
    if values.is_nested:
        kind, remedy = "nested", "give rows of one shape, say .to_padded_tensor(0.0)"
    elif values.layout != torch.strided:
        kind, remedy = "sparse", "give them as .to_dense()"
    elif values.is_quantized:
        kind, remedy = "quantised", "give them as .dequantize()"
    elif values.dtype in _NUMPY_LACKS:
        kind, remedy = str(values.dtype).removeprefix("torch."), "give them as .float()"
    if kind:
        raise DataError(f"{subject} are a {kind} tensor: {remedy}.")
    try:
        return values.detach().cpu().resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError) as problem:
        raise DataError(
            f"{subject} are a tensor that makes no array ({problem}): give it as .float().cpu()."
        ) from problem
