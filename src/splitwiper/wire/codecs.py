"""Codecs: how activations are encoded before they cross the cut, and decoded on the training device.

Rows keep a fixed width, so an encoded shard is still read through a memory map, a batch at a time. A codec sees only
columns of floats; integers and booleans are sent as they are. What it fits to data, it fits to only the client's
surviving rows (`splitwiper.client.fitted`), and the shard stores it.

| codec | per value | what it keeps |
|---|---|---|
| ``none`` | as computed | everything |
| ``float16`` | 2 bytes | 11 significant bits, up to 65,504 |
| ``bfloat16`` | 2 bytes | 8 significant bits, any range |
| ``int8`` | 1 byte | 256 levels per channel |
| ``int4`` | ½ byte | 16 levels per channel |

Shards, stores and answers say how they are encoded in one text, here called an *encoding*: a codec's name, or the
origin of a codec from outside (`splitwiper.extensions.Origin`). Such a codec is imported by `prepare`, which takes an
encoding from a party's own settings or store; one that arrives from elsewhere is only compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from splitwiper import extensions
from splitwiper.errors import ConfigError, DataError
from splitwiper.wire.columns import FLOATS, STORED, TORCH, Column, torch_dtype

Fitted = Mapping[str, Tensor]
"""What a codec fitted to a column, by name: float32, and of shapes that only the column decides."""
LARGEST = 1e30
"""Larger activations cannot be trained on: their squares are infinite in float32."""


class Fitter(Protocol):
    """Fits a codec to a column, batch by batch."""

    def add(self, values: Tensor) -> None:
        """Take a batch of rows into account."""
        ...

    def fitted(self) -> dict[str, Tensor]:
        """Return what was fitted, as float32 on the CPU."""
        ...


class Codec(Protocol):
    """A way to encode columns of floats. `docs/how-to/extend.md` shows how to write one.

    What exactness requires: every method is a function of only its arguments and the codec's settings. It draws no
    random numbers, keeps nothing from one call to the next, and treats each row by itself, whatever the batch. All that
    depends on data goes through a `Fitter`, which sees the survivors in an order that follows from their content.

    `decode` gets bytes that another party made. For any stored rows, and anything of the right shapes in ``fitted``, it
    returns rows, or raises a `DataError`; values that nobody can train on are found and refused by the caller.
    """

    def stored(self, column: Column) -> Column:
        """Return the column as a shard stores it: under the same name, with a dtype and a shape for each row."""
        ...

    def shapes(self, column: Column) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of what is fitted to this column, by name; nothing if nothing is."""
        ...

    def fitter(self, column: Column) -> Fitter | None:
        """Return a new fitter; None if nothing is fitted."""
        ...

    def encode(self, values: Tensor, column: Column, fitted: Fitted) -> Tensor:
        """Encode rows (n × the column's shape) as n rows of `stored`; bfloat16 is stored as the int16 of its bits."""
        ...

    def decode(self, values: Tensor, column: Column, fitted: Fitted, dtype: torch.dtype) -> Tensor:
        """Decode n stored rows into ``dtype``, on the device they are on.

        ``fitted`` has one dimension more in front: one entry for each row, since rows of a batch come from several
        shards, or a single one for all rows.
        """
        ...


@runtime_checkable
class BoundedCodec(Codec, Protocol):
    """A codec whose largest value follows from what it fitted, so that shards are checked without decoding them."""

    def reach(self, fitted: Fitted) -> float:
        """Return the largest absolute value that any stored row decodes to; infinity if ``fitted`` is unusable."""
        ...


class FloatCodec:
    """Rounds to a shorter float."""

    def __init__(self, stored: str, dtype: torch.dtype) -> None:
        self._stored, self._dtype = stored, dtype

    def stored(self, column: Column) -> Column:
        """Return the column in the shorter dtype."""
        return Column(column.name, self._stored, column.shape)

    def shapes(self, column: Column) -> Mapping[str, tuple[int, ...]]:
        """Return no shapes: nothing is fitted."""
        return {}

    def fitter(self, column: Column) -> None:
        """Return None: nothing is fitted."""

    def encode(self, values: Tensor, column: Column, fitted: Fitted) -> Tensor:
        """Round to the shorter dtype."""
        values = values.to(self._dtype)
        return values.view(torch.int16) if self._dtype is torch.bfloat16 else values  # NumPy knows no bfloat16

    def decode(self, values: Tensor, column: Column, fitted: Fitted, dtype: torch.dtype) -> Tensor:
        """Widen again."""
        return (values.view(torch.bfloat16) if self._dtype is torch.bfloat16 else values).to(dtype)


class IntegerCodec:
    """Integers, affine per channel: ``value ≈ low + step · code``; values beyond the levels are clipped.

    A channel is the first dimension of a map (channels × height × width), the last one of other tensors. Values keep
    their order and neighbours share a byte, which zstd exploits.

    Args:
        bits: 8, or 4 with two values in a byte.
        deviations: how many deviations from the mean the levels reach.
    """

    def __init__(self, bits: int, deviations: float) -> None:
        self._bits, self._levels, self._deviations = bits, 2**bits - 1, deviations

    def stored(self, column: Column) -> Column:
        """Return the column as a row of bytes."""
        values = math.prod(column.shape)
        return Column(column.name, "U8", (values if self._bits == 8 else -(-values // 2),))

    def shapes(self, column: Column) -> Mapping[str, tuple[int, ...]]:
        """Return one ``low`` and one ``step`` for each channel."""
        return dict.fromkeys(("low", "step"), (channels(column),))

    def fitter(self, column: Column) -> Fitter:
        """Return a fitter of ``low`` and ``step``."""
        return ValueSpread(column, self._levels, self._deviations)

    def encode(self, values: Tensor, column: Column, fitted: Fitted) -> Tensor:
        """Round to the nearest level."""
        # channels × 1, so that they line up with rows × before × channels × after
        low, step = (fitted[name].to(values.device)[:, None] for name in ("low", "step"))
        levels = ((by_channel(values.float(), column) - low) / step).round_().clamp_(0, self._levels)
        codes = levels.to(torch.uint8).flatten(1)
        if self._bits == 8:
            return codes
        codes = functional.pad(codes, (0, codes.shape[1] % 2))  # an odd value has no partner: zeros
        return codes[:, 0::2] | (codes[:, 1::2] << 4)

    def decode(self, values: Tensor, column: Column, fitted: Fitted, dtype: torch.dtype) -> Tensor:
        """Return the levels' values."""
        # rows × 1 × channels × 1, to match the values' rows × before × channels × after
        low, step = (fitted[name].to(dtype)[:, None, :, None] for name in ("low", "step"))
        if self._bits == 4:
            pairs = torch.stack((values & 15, values >> 4), dim=2)
            values = pairs.flatten(1)[:, : math.prod(column.shape)]
        out = (by_channel(values, column) * step).add_(low)
        return out.reshape(len(values), *column.shape)

    def reach(self, fitted: Fitted) -> float:
        """Return the farther end of the levels; infinity unless every step is larger than zero."""
        low, step = fitted["low"], fitted["step"]
        if not bool((step > 0).all()):
            return math.inf
        return max(farthest(low), farthest(low + step * self._levels))


class ValueSpread:
    """Fits the levels of integers to the range, mean and deviation of every channel of a column."""

    def __init__(self, column: Column, levels: int, deviations: float) -> None:
        self._column, self._levels, self._deviations = column, levels, deviations
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

    def fitted(self) -> dict[str, Tensor]:
        """Return levels that cover all values, but not so wide that a few outliers cost all others their precision."""
        # in float64, and rounded once at the end: a difference of squares in float32 would lose the deviation
        mean, square = self._sums / self._count
        reach = self._deviations * (square - mean.square()).clamp(min=0).sqrt()
        low, high = torch.maximum(self._low, (mean - reach).float()), torch.minimum(self._high, (mean + reach).float())
        step = (high - low) / self._levels
        # a constant channel has no width; any step keeps its value, and one that is not zero can be divided by
        return {"low": low, "step": torch.where(step > 0, step, torch.ones_like(step))}


_CODECS: dict[str, Codec] = {
    "float16": FloatCodec("F16", torch.float16),
    "bfloat16": FloatCodec("BF16", torch.bfloat16),
    "int8": IntegerCodec(8, 12.0),
    "int4": IntegerCodec(4, 5.0),
}
"""Codecs by encoding: those built in, and those from outside that `prepare` has imported."""


def channels(column: Column) -> int:
    """Return the number of channels of a column."""
    if not column.shape:
        return 1
    return column.shape[0] if len(column.shape) == 3 else column.shape[-1]


def by_channel(values: Tensor, column: Column) -> Tensor:
    """Reshape rows to (rows, before, channels, after), so that one number per channel, times 1, lines up."""
    count = channels(column)
    places = math.prod(column.shape) // max(1, count)
    return values.reshape(len(values), *((1, count, places) if len(column.shape) == 3 else (places, count, 1)))


# --- encodings -----------------------------------------------------------------------------------------------


def prepare(encoding: str) -> str:
    """Import the codec of an encoding that this party's own settings or store name, and return the encoding."""
    if encoding != "none" and encoding not in _CODECS:
        _CODECS[encoding] = extensions.recall(encoding)
    return encoding


def is_encoding(text: str) -> bool:
    """Return whether a text can be the encoding of a shard: a codec that is built in, or one from outside."""
    return text == "none" or text in _CODECS or ":" in text


def codec_for(column: Column, encoding: str) -> Codec | None:
    """Return the codec that encodes a column; None if the column is sent as it is.

    Raises:
        ConfigError: the codec is from outside, and nothing here has named it.
    """
    if encoding == "none" or column.dtype not in FLOATS:
        return None
    if encoding not in _CODECS:
        raise ConfigError(f"rows are encoded by {encoding}, which is not a codec of this federation.")
    return _CODECS[encoding]


def stored(column: Column, encoding: str) -> Column:
    """Return a column as a shard stores it."""
    codec = codec_for(column, encoding)
    return codec.stored(column) if codec else column


def fitters(columns: Sequence[Column], encoding: str) -> dict[str, Fitter]:
    """Return a fitter for each column to which something must be fitted, by the column's name."""
    out: dict[str, Fitter] = {}
    for column in columns:
        codec = codec_for(column, encoding)
        if codec is not None and (fitter := codec.fitter(column)) is not None:
            out[column.name] = fitter
    return out


# --- fitted values as tensors -----------------------------------------------------------------------------


def named(fitted: Mapping[str, Fitted]) -> dict[str, Tensor]:
    """Return what was fitted to columns as tensors by name: the form in shards, in predictions and on disk."""
    out: dict[str, Tensor] = {}
    for column, own in fitted.items():
        for key, tensor in own.items():
            out[f"@{key}/{column}"] = tensor
    return out


def is_fitted(name: str) -> bool:
    """Return whether a tensor of this name is something fitted to a column."""
    return name.startswith("@") and "/" in name


def fitted_in(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Invert `named`; tensors that are columns are left out."""
    out: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if is_fitted(name):
            key, _, column = name.removeprefix("@").partition("/")
            out.setdefault(column, {})[key] = tensor
    return out


def check_fitted(column: Column, encoding: str, fitted: Fitted) -> None:
    """Refuse what was fitted to a column if its shapes are wrong or its values cannot be trained on."""
    codec = codec_for(column, encoding)
    wanted = codec.shapes(column) if codec else {}
    if wanted and not fitted:
        raise DataError(f"{column.name} is encoded by {encoding}, but what that fitted to it did not come with it.")
    fits = fitted.keys() == wanted.keys()
    for name in wanted if fits else ():
        tensor = fitted[name]
        fits &= tensor.dtype == torch.float32 and tuple(tensor.shape) == tuple(wanted[name]) and bounded(tensor)
    if not fits or (isinstance(codec, BoundedCodec) and not codec.reach(fitted) <= LARGEST):
        raise DataError(
            f"what {encoding} fitted to {column.name} is out of range, or not of the shapes {dict(wanted)} that follow "
            "from the cut."
        )


# --- rows ----------------------------------------------------------------------------------------------------


def encode(values: Tensor, column: Column, encoding: str, fitted: Fitted | None = None) -> Tensor:
    """Encode rows of a column as a shard stores them."""
    codec = codec_for(column, encoding)
    if codec is None:
        return values
    sent = codec.encode(values, column, fitted or {})
    announced = codec.stored(column)
    if tuple(sent.shape) != (len(values), *announced.shape) or sent.dtype != stored_dtype(announced):  # from outside
        raise ConfigError(f"{encoding} encoded {column} as {sent.dtype} {list(sent.shape)}, and announced {announced}.")
    return sent


def stored_dtype(column: Column) -> torch.dtype:
    """Return the torch dtype of a stored column."""
    return torch_dtype(np.dtype(STORED[column.dtype]))


def decode(
    values: Tensor,
    column: Column,
    encoding: str,
    fitted: Fitted | None = None,
    *,
    owner: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Decode rows of a column from the form that a shard stores.

    If there is an ``owner``, the shard that each row is from, what was fitted is stacked, with one entry per shard.
    Columns of float32 are decoded to ``dtype``; others keep their own.
    """
    codec = codec_for(column, encoding)
    if codec is None:
        return values
    rowwise: dict[str, Tensor] = {}
    for name, tensor in (fitted or {}).items():  # a single entry for all rows, or each row's own
        rowwise[name] = tensor[None] if owner is None else tensor[owner]
    return codec.decode(values, column, rowwise, dtype if column.dtype == "F32" else TORCH[column.dtype])


def pack(
    boundary: Mapping[str, Tensor], columns: Sequence[Column], encoding: str, fitted: Mapping[str, Fitted]
) -> dict[str, Tensor]:
    """Encode what crosses the cut for a prediction: columns in stored form, and what is needed to decode them."""
    out: dict[str, Tensor] = {}
    for column in columns:
        out[column.name] = encode(boundary[column.name], column, encoding, fitted.get(column.name))
    return out | named(fitted)


def unpack(tensors: Mapping[str, Tensor], columns: Sequence[Column], encoding: str) -> dict[str, Tensor]:
    """Decode the tensors that crossed the cut, and refuse any of another form than the cut sends."""
    out: dict[str, Tensor] = {}
    every = fitted_in(tensors)
    for column in columns:
        if column.name not in tensors:
            continue
        arrived, expected = tensors[column.name], stored(column, encoding)
        if tuple(arrived.shape[1:]) != expected.shape or arrived.dtype != stored_dtype(expected):
            shape = list(arrived.shape[1:])
            raise DataError(
                f"{column.name} arrived as {arrived.dtype} with rows of shape {shape}, the cut sends {expected}."
            )
        fitted = every.get(column.name, {})
        check_fitted(column, encoding, fitted)
        out[column.name] = decode(arrived, column, encoding, fitted)
    return out


# --- values that can be trained on ---------------------------------------------------------------------------


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
