"""Payload codecs: how activations are encoded before they cross the cut, and decoded on the training device.

Rows keep a fixed width, so an encoded shard is still read through a memory map, a batch at a time. Integers are affine
per channel: ``value ≈ low + step · code``. A channel is the first dimension of a map (channels × height × width) and
the last one of anything else. Values keep their order and neighbours share a byte, which zstd exploits. `Ranges` are
fitted to only the client's surviving rows (`splitwiper.client.fitted`), and are stored in the shard.

| codec | per value | what it keeps |
|---|---|---|
| ``none`` | as computed | everything |
| ``float16`` | 2 bytes | 11 significant bits, up to 65,504 |
| ``bfloat16`` | 2 bytes | 8 significant bits, any range |
| ``int8`` | 1 byte | 256 levels per channel |
| ``int4`` | ½ byte | 16 levels per channel |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from splitwiper.errors import DataError
from splitwiper.wire.columns import STORED, Column

_FLOATS = {"float16": ("F16", torch.float16), "bfloat16": ("BF16", torch.bfloat16)}
_BITS = {"int8": 8, "int4": 4}
_LOW, _STEP = "@low/", "@step/"
LARGEST = 1e30
"""Larger activations cannot be trained on: their squares are infinite in float32."""
_OWN = {"F64": torch.float64, "F16": torch.float16}


@dataclass(frozen=True)
class Ranges:
    """The affine map of one column's channels: ``low`` and ``step``, one float32 each per channel."""

    low: Tensor
    step: Tensor


def named(ranges: Mapping[str, Ranges]) -> dict[str, Tensor]:
    """Return the ranges of columns as tensors by name: the form in shards, in predictions and on disk."""
    return {f"{at}{name}": t for name, r in ranges.items() for at, t in ((_LOW, r.low), (_STEP, r.step))}


def ranges_in(tensors: Mapping[str, Tensor]) -> dict[str, Ranges]:
    """Invert `named`, for columns of which both tensors are present."""
    names = [key.removeprefix(_LOW) for key in tensors if key.startswith(_LOW)]
    return {n: Ranges(tensors[_LOW + n], tensors[_STEP + n]) for n in names if _STEP + n in tensors}


def is_range(name: str) -> bool:
    """Return whether a tensor of this name belongs to ranges."""
    return name.startswith((_LOW, _STEP))


def is_coded(column: Column, codec: str) -> bool:
    """Return whether a codec changes a column at all: integers and booleans are sent as they are."""
    return codec != "none" and column.dtype in ("F64", "F32", "F16")


def has_ranges(column: Column, codec: str) -> bool:
    """Return whether a codec needs ranges fitted to this column."""
    return codec in _BITS and is_coded(column, codec)


def channels(column: Column) -> int:
    """Return the number of channels of a column."""
    if not column.shape:
        return 1
    return column.shape[0] if len(column.shape) == 3 else column.shape[-1]


def stored(column: Column, codec: str) -> Column:
    """Return a column as a shard stores it."""
    if not is_coded(column, codec):
        return column
    if codec in _FLOATS:
        return Column(column.name, _FLOATS[codec][0], column.shape)
    values = math.prod(column.shape)
    return Column(column.name, "U8", (values if codec == "int8" else -(-values // 2),))


def by_channel(values: Tensor, column: Column) -> Tensor:
    """Reshape rows to (rows, before, channels, after), so that one number per channel, times 1, lines up."""
    count = channels(column)
    places = math.prod(column.shape) // max(1, count)
    return values.reshape(len(values), *((1, count, places) if len(column.shape) == 3 else (places, count, 1)))


def fit_range(low: Tensor, high: Tensor, codec: str) -> Ranges:
    """Return ranges whose levels reach from ``low`` to ``high``; a constant channel keeps its value."""
    step = (high - low) / (2 ** _BITS[codec] - 1)
    return Ranges(low, torch.where(step > 0, step, torch.ones_like(step)))


def encode(values: Tensor, column: Column, codec: str, ranges: Ranges | None = None) -> Tensor:
    """Encode rows of a column as a shard stores them; values beyond the ranges are clipped."""
    if not is_coded(column, codec):
        return values
    if codec in _FLOATS:
        values = values.to(_FLOATS[codec][1])
        return values.view(torch.int16) if codec == "bfloat16" else values  # NumPy knows no bfloat16
    if ranges is None:
        raise DataError(f"{column.name} is coded as {codec}, but its ranges did not come with it.")
    low, step = (r.to(values.device)[:, None] for r in (ranges.low, ranges.step))
    levels = ((by_channel(values.float(), column) - low) / step).round_().clamp_(0, 2 ** _BITS[codec] - 1)
    codes = levels.to(torch.uint8).flatten(1)
    if codec == "int8":
        return codes
    codes = functional.pad(codes, (0, codes.shape[1] % 2))
    return codes[:, 0::2] | (codes[:, 1::2] << 4)


def decode(
    values: Tensor,
    column: Column,
    codec: str,
    ranges: Ranges | None = None,
    *,
    owner: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    shifted: bool = True,
) -> Tensor:
    """Decode rows of a column from the form that a shard stores.

    Args:
        values: stored rows.
        column: the column as the cut sends it.
        codec: the codec of the stored rows.
        ranges: for integers, the ranges: one vector each, or a matrix with one row per shard.
        owner: for a matrix of ranges, the shard that each row is from.
        dtype: the dtype for columns of float32; others keep their own.
        shifted: whether any ``low`` is not zero; if none is, as behind a ReLU, the addition is skipped.
    """
    if not is_coded(column, codec):
        return values
    dtype = _OWN.get(column.dtype, dtype)
    if codec in _FLOATS:
        return (values.view(torch.bfloat16) if codec == "bfloat16" else values).to(dtype)
    if ranges is None:
        raise DataError(f"{column.name} is coded as {codec}, but its ranges did not come with it.")
    pair = (ranges.low, ranges.step)
    low, step = (r.to(dtype)[:, None] if owner is None else r.to(dtype)[owner][:, None, :, None] for r in pair)
    if codec == "int4":
        values = torch.stack((values & 15, values >> 4), dim=2).flatten(1)[:, : math.prod(column.shape)]
    out = by_channel(values, column) * step
    return (out.add_(low) if shifted else out).reshape(len(values), *column.shape)


def bounded(values: Tensor, largest: float = LARGEST) -> bool:
    """Return whether values are finite, and not too large to train on."""
    return farthest(values) <= min(largest, torch.finfo(values.dtype).max) if values.is_floating_point() else True


def farthest(values: Tensor) -> float:
    """Return the largest absolute value; NaN if there is a NaN, 0 for tensors that are not floats."""
    if not (values.is_floating_point() and values.numel()):
        return 0.0
    low, high = torch.aminmax(values)  # NaN if there is any; one pass, and no copy
    return float(torch.maximum(low.abs(), high.abs()))


def too_large(
    client: str, column: str, value: float, largest: float, *, where: str = "", codec: str = "none"
) -> DataError:
    """Return the error for a value that is not finite, or beyond what the federation accepts."""
    whose = f"client {client!r}: " if client else ""
    other = " or take the codec bfloat16," if codec == "float16" else ""
    return DataError(
        f"{whose}column {column!r} has the value {value:g}{where}, and this federation takes finite values up to "
        f"{largest:g}, not NaN or infinite ones: scale the inputs (standardise = true), lower lr, set clip,{other} "
        "in a new run; in this one, forget the rows that were added last."
    )


def reach(ranges: Ranges, codec: str) -> float:
    """Return the largest absolute value that integer codes with these ranges stand for."""
    return max(farthest(ranges.low), farthest(ranges.low + ranges.step * (2 ** _BITS[codec] - 1)))


def usable(ranges: Ranges, codec: str) -> bool:
    """Return whether ranges are a pair of vectors whose levels are finite, increasing, and can be trained on."""
    low, step = ranges.low, ranges.step
    if low.ndim != 1 or low.shape != step.shape or not (low.dtype == step.dtype == torch.float32):
        return False
    return bool((step > 0).all()) and reach(ranges, codec) <= LARGEST


def pack(
    boundary: Mapping[str, Tensor], columns: Sequence[Column], codec: str, ranges: Mapping[str, Ranges]
) -> dict[str, Tensor]:
    """Encode what crosses the cut for a prediction: columns in stored form, and the ranges to decode them with."""
    return {c.name: encode(boundary[c.name], c, codec, ranges.get(c.name)) for c in columns} | named(ranges)


def unpack(tensors: Mapping[str, Tensor], columns: Sequence[Column], codec: str) -> dict[str, Tensor]:
    """Decode the tensors that crossed the cut."""
    out, found = {}, ranges_in(tensors) if codec in _BITS else {}
    for column in (c for c in columns if c.name in tensors):
        here, there = tensors[column.name], stored(column, codec)
        wanted = np.dtype(STORED[there.dtype])
        if tuple(here.shape[1:]) != there.shape or str(here.dtype) != f"torch.{wanted}":
            shape = list(here.shape[1:])
            raise DataError(f"{column.name} arrived as {here.dtype} with rows of shape {shape}, the cut sends {there}.")
        ranges = found.get(column.name)
        if ranges is not None and (len(ranges.low) != channels(column) or not usable(ranges, codec)):
            raise DataError(f"the ranges of {column.name} are out of range, or not one per channel of the cut.")
        out[column.name] = decode(here, column, codec, ranges)
    return out
