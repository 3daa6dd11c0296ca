"""Check a shard that another party sent, value by value, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from splitwiper.errors import DataError
from splitwiper.wire.codecs import LARGEST, BoundedCodec, check_fitted, codec_for, decode, farthest, stored, too_large
from splitwiper.wire.columns import FLOATS, STORED, Array, Column
from splitwiper.wire.labels import in_order
from splitwiper.wire.shard import Shard

_BLOCK = 1 << 20  # bytes per block: blocks that fit into caches are three times as fast


def check_shard(
    shard: Shard, columns: Sequence[Column], codec: str = "none", *, client: str = "", largest: float = LARGEST
) -> None:
    """Check an opened shard against the columns that cross the cut, value by value, in bounded memory.

    Raises:
        DataError: the columns do not fit the cut, the codec differs, there are no rows, values are not finite or too
            large, label indices are outside the table, or a label in the table has no row.
    """
    if shard.codec != codec:
        raise DataError(f"the shard is coded as {shard.codec!r}, this federation's are as {codec!r}.")
    wanted = {column.name: stored(column, codec) for column in columns}
    if set(shard.columns) != set(wanted):
        raise DataError(f"the shard carries {sorted(shard.columns)}, the cut sends {sorted(wanted)}.")
    if not shard.rows:
        raise DataError("the shard has no rows; a client with nothing left withdraws its shard instead.")
    if unknown := shard.fitted.keys() - wanted.keys():
        raise DataError(f"the shard has something fitted to {sorted(unknown)[:3]}, and the cut sends {sorted(wanted)}.")
    for column in columns:
        _check_column(shard, column, wanted[column.name], client, largest)
    for label in shard.labels:
        if label.fault:
            raise DataError(label.fault)
    _check_codes(shard)


def _check_column(shard: Shard, column: Column, expected: Column, client: str, largest: float) -> None:
    """Refuse a column of another form than the cut sends, or with values that cannot be trained on."""
    check_fitted(column, shard.codec, shard.fitted.get(column.name, {}))
    values = shard.columns[column.name]
    if values.shape[1:] != expected.shape or values.dtype != np.dtype(STORED[expected.dtype]):
        raise DataError(f"column {column.name!r} is {values.dtype}{list(values.shape[1:])}, the cut sends {expected}.")
    for value, where in _farthest_values(shard, column):
        if not value <= largest:  # also true of NaN
            raise too_large(client, column.name, value, largest, where=where)
    if values.dtype.kind == "b":  # other bytes than 0 and 1 are undefined behaviour in compiled kernels
        for _, part in _blocks(values):
            if (part.view(np.uint8) > 1).any():
                raise DataError(f"column {column.name!r} has truth values that are neither true nor false.")


def farthest_value(shard: Shard, columns: Sequence[Column]) -> float:
    """Return the largest absolute value of a checked shard's decoded rows, in bounded memory."""
    return max((value for column in columns for value, _ in _farthest_values(shard, column)), default=0.0)


def _farthest_values(shard: Shard, column: Column) -> Iterator[tuple[float, str]]:
    """Yield the largest absolute value of each part of a decoded column, and where that part is, in words.

    Rows are decoded for this, since only the codec knows what a stored byte stands for; unless the codec
    knows its largest value from what it fitted.
    """
    codec, fitted = codec_for(column, shard.codec), shard.fitted.get(column.name, {})
    if isinstance(codec, BoundedCodec):
        yield codec.reach(fitted), ""
    elif column.dtype in FLOATS:
        for start, part in _blocks(shard.columns[column.name], math.prod(column.shape) * 4):
            # a copy: the map is read-only, which torch does not allow
            rows = decode(torch.from_numpy(np.array(part)), column, shard.codec, fitted)
            if tuple(rows.shape) != (len(part), *column.shape) or not rows.is_floating_point():
                raise DataError(f"column {column.name!r} decodes to {rows.dtype} {list(rows.shape)}, not to {column}.")
            yield farthest(rows), f" in rows {start} to {start + len(part) - 1}"


def _blocks(values: Array, wide: int = 0) -> Iterator[tuple[int, Array]]:
    """Yield rows in blocks of bounded size, each with the index of its first row; ``wide`` is a decoded row's size."""
    step = max(1, _BLOCK // max(1, wide, values[:1].nbytes))
    for start in range(0, len(values), step):
        yield start, values[start : start + step]


def _check_codes(shard: Shard) -> None:
    """Check that label indices point into the table, and that every label in it has a row."""
    known = len(shard.labels)
    present, low, high = np.zeros(known, bool), 0, -1
    for _, part in _blocks(shard.codes):
        low, high = min(low, int(part.min())), max(high, int(part.max()))
        present[part[(part >= 0) & (part < known)]] = True
    if shard.labels != in_order(shard.labels) or low < 0 or high >= known or not present.all():
        raise DataError(f"label indices {low}…{high} do not match the shard's table of {known} labels.")
