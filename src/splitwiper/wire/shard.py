"""The shard format: one safetensors file that is upload and cache at once.

Fixed-width rows, one column per tensor that crosses the cut and a column of label indices, read through
``np.memmap``. The bytes are a pure function of the rows: no ids, no generation, no time. The header carries a
version and required-feature flags; a reader refuses flags it does not know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors

from splitwiper.errors import CorruptError, DataError, FormatError
from splitwiper.wire.labels import Label, in_order

FORMAT = "splitwiper-shard"
VERSION = 1
FEATURES: frozenset[str] = frozenset()
"""Feature flags this reader understands."""
LABEL_COLUMN = "@label"
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"}
DTYPES |= {"U8": "u1", "BOOL": "?"}
_MAX_HEADER = 16 << 20
_BLOCK = 1 << 24  # bytes looked at in one go when a shard is checked


@dataclass(frozen=True)
class Column:
    """One tensor of a row: its name, safetensors dtype, and shape without the row dimension."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        """Bytes per row."""
        return math.prod(self.shape) * np.dtype(DTYPES[self.dtype]).itemsize

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Shard:
    """An opened shard: memory-mapped columns, label indices and the table they point into."""

    path: Path
    rows: int
    columns: Mapping[str, np.ndarray[Any, np.dtype[Any]]]
    codes: np.ndarray[Any, np.dtype[np.int32]]
    labels: tuple[Label, ...]


Block = tuple[Mapping[str, "np.ndarray[Any, np.dtype[Any]]"], "np.ndarray[Any, np.dtype[np.int32]]"]


def write_shard(
    file: IO[bytes], *, columns: Sequence[Column], rows: int, labels: Sequence[Label], blocks: Iterable[Block]
) -> None:
    """Write a shard block by block; memory stays at one block.

    Args:
        file: a new binary file that can seek.
        columns: the tensors of a row.
        rows: how many rows the blocks add up to.
        labels: the table; every label in it occurs in the rows.
        blocks: (tensors by column name, label indices) in row order.
    """
    layout = sorted(
        [*columns, Column(LABEL_COLUMN, "I32", ())], key=lambda c: (-np.dtype(DTYPES[c.dtype]).itemsize, c.name)
    )
    meta = {
        "format": FORMAT,
        "version": str(VERSION),
        "features": "[]",
        "labels": json.dumps([x.text for x in labels]),
    }
    header: dict[str, Any] = {"__metadata__": meta}
    at, starts = 0, {}
    for column in layout:
        starts[column.name], end = at, at + rows * column.width
        header[column.name] = {
            "dtype": column.dtype,
            "shape": [rows, *column.shape],
            "data_offsets": [at, end],
        }
        at = end
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-(8 + len(raw)) % 64)  # data starts on a cache line
    file.write(len(raw).to_bytes(8, "little") + raw)
    base, done = 8 + len(raw), 0
    for tensors, codes in blocks:
        for column in layout:
            values = codes if column.name == LABEL_COLUMN else tensors[column.name]
            if values.shape != (len(codes), *column.shape):
                raise DataError(f"{column} got values of shape {list(values.shape)}: every row must fit the cut.")
            file.seek(base + starts[column.name] + done * column.width)
            file.write(np.ascontiguousarray(values, dtype=DTYPES[column.dtype]).tobytes())
        done += len(codes)
    if done != rows:
        raise DataError(f"{done} rows were given where {rows} were announced.")


def open_shard(path: Path) -> Shard:
    """Open a shard without reading its rows.

    Raises:
        FormatError: not a shard, a newer version, or unknown feature flags.
        CorruptError: the file is truncated or its header does not fit its size.
    """
    header, base = _read_header(path)
    meta = header.pop("__metadata__", None) or {}
    if meta.get("format") != FORMAT:
        raise FormatError(f"{path} is a safetensors file but not a SplitWiper shard.")
    if meta.get("version") not in [str(known) for known in range(1, VERSION + 1)]:
        raise FormatError(
            f"{path} is a shard of version {meta.get('version')!r}, "
            f"this program reads up to {VERSION}: upgrade SplitWiper."
        )
    try:
        features = set(json.loads(meta.get("features", "[]")))
        labels = tuple(Label.parse(text) for text in json.loads(meta["labels"]))
    except (ValueError, TypeError, KeyError, RecursionError, FormatError) as problem:
        raise FormatError(f"{path}: the shard's header is malformed ({problem}).") from problem
    if unknown := sorted(map(str, features - FEATURES)):
        raise FormatError(
            f"{path} needs features this program does not have: {', '.join(unknown)}. Upgrade SplitWiper."
        )
    columns: dict[str, np.ndarray[Any, np.dtype[Any]]] = {}
    for name, entry in header.items():
        if entry["dtype"] not in DTYPES:
            raise FormatError(f"{path}: column {name!r} has dtype {entry['dtype']!r}, which shards do not carry.")
        shape = tuple(entry["shape"])
        columns[name] = (
            np.memmap(path, dtype=DTYPES[entry["dtype"]], mode="r", offset=base + entry["data_offsets"][0], shape=shape)
            if math.prod(shape)
            else np.empty(shape, DTYPES[entry["dtype"]])
        )
    codes = columns.pop(LABEL_COLUMN, None)
    if codes is None or codes.ndim != 1 or codes.dtype != np.int32:
        raise FormatError(f"{path}: the shard has no column of label indices.")
    if any(c.ndim < 1 or len(c) != len(codes) for c in columns.values()):
        raise FormatError(f"{path}: columns of different length.")
    return Shard(path, len(codes), columns, codes, labels)


def check_shard(shard: Shard, columns: Sequence[Column]) -> None:
    """Check an opened shard against the cut, value by value, in bounded memory.

    Raises:
        DataError: columns that do not fit the cut, no rows, values that are not finite, label indices outside the
            table, or labels in the table that no row has.
    """
    wanted = {c.name: c for c in columns}
    if set(shard.columns) != set(wanted):
        raise DataError(f"the shard carries {sorted(shard.columns)}, the cut sends {sorted(wanted)}.")
    if not shard.rows:
        raise DataError("the shard has no rows; a client with nothing left withdraws its shard instead.")
    for name, values in shard.columns.items():
        column = wanted[name]
        if values.shape[1:] != column.shape or values.dtype != np.dtype(DTYPES[column.dtype]):
            raise DataError(f"column {name!r} is {values.dtype}{list(values.shape[1:])}, the cut sends {column}.")
        step = max(1, _BLOCK // max(1, column.width))
        for start in range(0, shard.rows, step):
            part = values[start : start + step]
            if part.dtype.kind == "f" and not np.isfinite(part).all():
                raise DataError(
                    f"column {name!r} has NaN or infinite values between rows {start} and {start + step}; "
                    "the client's half or inputs are out of range."
                )
            if part.dtype.kind == "b" and (part.view(np.uint8) > 1).any():
                raise DataError(f"column {name!r} has truth values that are neither true nor false.")
    present = np.unique(shard.codes)
    if shard.labels != in_order(shard.labels) or not np.array_equal(present, np.arange(len(shard.labels))):
        raise DataError(
            f"label indices {present.min()}…{present.max()} do not match "
            f"the shard's table of {len(shard.labels)} labels."
        )


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The parsed header and where the data starts; safetensors itself checks offsets against the file's size."""
    try:
        with safetensors.safe_open(path, framework="numpy"):
            pass
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > _MAX_HEADER:
                raise FormatError(f"{path}: a header of {size} bytes is beyond the limit of {_MAX_HEADER}.")
            header: dict[str, Any] = json.loads(file.read(size))
    except (safetensors.SafetensorError, ValueError, RecursionError) as problem:
        raise CorruptError(f"{path} is truncated or corrupted ({problem}).") from problem
    return header, 8 + size
