"""The shard format: one safetensors file that is both upload and cache.

Fixed-width rows, one column per tensor that crosses the cut and a column of label indices, mapped into memory. Columns
may be encoded (`splitwiper.wire.codecs`); what a codec fitted to them is in the file too. The bytes are a pure
function of the rows: no ids, no generation, no time. The header has a version and required-feature flags; a reader
refuses flags it does not know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
import torch

from splitwiper.errors import CorruptError, DataError, FormatError
from splitwiper.exclusive import own_pool
from splitwiper.reading import check_regular, opened
from splitwiper.wire.codecs import (
    LARGEST,
    BoundedCodec,
    Fitted,
    check_fitted,
    codec_for,
    decode,
    farthest,
    fitted_in,
    is_encoding,
    is_fitted,
    named,
    stored,
    too_large,
)
from splitwiper.wire.columns import STORED, Array, Column
from splitwiper.wire.labels import Label, in_order
from splitwiper.wire.mapping import mapped

FORMAT = "splitwiper-shard"
VERSION = 1
FEATURES = frozenset({"codec"})
"""Feature flags that this reader understands."""
LABEL_COLUMN = "@label"
_MAX_HEADER = 16 << 20
_BLOCK = 1 << 20  # bytes per block when a shard is checked: blocks that fit into caches are three times as fast


@dataclass(frozen=True)
class Shard:
    """An opened shard: memory-mapped columns, label indices, and the table they point into."""

    path: Path
    rows: int
    columns: Mapping[str, Array]
    codes: Array
    labels: tuple[Label, ...]
    codec: str = "none"
    """The encoding of the columns."""
    fitted: Mapping[str, Fitted] = field(default_factory=dict)
    """What the codec fitted, by column."""


Block = tuple[Mapping[str, Array], Array]


def write_shard(
    file: IO[bytes],
    *,
    columns: Sequence[Column],
    rows: int,
    labels: Sequence[Label],
    blocks: Iterable[Block],
    codec: str = "none",
    fitted: Mapping[str, Fitted] | None = None,
    behind: bool = True,
) -> None:
    """Write a shard block by block; memory is bounded by a block.

    Args:
        file: a new binary file that can seek.
        columns: the tensors of a row, as the cut sends them.
        rows: the total number of rows of the blocks.
        labels: the table; every label in it occurs in the rows.
        blocks: (tensors by column name, already encoded, and label indices) in row order.
        codec: the encoding of the blocks.
        fitted: what the codec fitted, by column.
        behind: write a block in the background while the next is computed; not if computing uses all cores anyway.
    """
    rowwise = [stored(c, codec) for c in columns] + [Column(LABEL_COLUMN, "I32", ())]
    fixed = named(fitted or {})
    layout = [(c.name, c.dtype, [rows, *c.shape], rows * c.width) for c in rowwise]
    layout += [(name, "F32", list(tensor.shape), 4 * tensor.numel()) for name, tensor in fixed.items()]
    layout.sort(key=lambda entry: (-np.dtype(STORED[entry[1]]).itemsize, entry[0]))
    meta = {
        "format": FORMAT,
        "version": str(VERSION),
        "features": "[]" if codec == "none" else '["codec"]',
        "labels": json.dumps([x.text for x in labels]),
    }
    header: dict[str, Any] = {"__metadata__": meta if codec == "none" else {**meta, "codec": codec}}
    at, starts = 0, {}
    for name, dtype, shape, size in layout:
        starts[name] = at
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-(8 + len(raw)) % 64)  # data starts on a cache line
    file.write(len(raw).to_bytes(8, "little") + raw)
    base, done = 8 + len(raw), 0
    for name, tensor in fixed.items():
        file.seek(base + starts[name])
        file.write(tensor.numpy().astype("<f4").tobytes())

    def write(tensors: Mapping[str, Array], codes: Any, done: int) -> None:
        for column in rowwise:
            values = codes if column.name == LABEL_COLUMN else tensors[column.name]
            if values.shape != (len(codes), *column.shape):
                raise DataError(f"{column} got values of shape {list(values.shape)}: every row must fit the cut.")
            file.seek(base + starts[column.name] + done * column.width)
            file.write(np.ascontiguousarray(values, dtype=STORED[column.dtype]).data)

    with own_pool(1) as writer:  # writes while the next block is computed
        under_way: Future[None] | None = None
        for tensors, codes in blocks:
            if under_way:
                under_way.result()
            if behind:
                under_way = writer.submit(write, tensors, codes, done)
            else:
                write(tensors, codes, done)
            done += len(codes)
        if under_way:
            under_way.result()
    if done != rows:
        raise DataError(f"{done} rows were given where {rows} were announced.")


def open_shard(path: Path) -> Shard:
    """Open a shard without reading its rows.

    Raises:
        FormatError: the file is not a shard, has a newer version, or unknown feature flags.
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
        codec = meta.get("codec", "none")
    except (ValueError, TypeError, KeyError, RecursionError, FormatError) as problem:
        raise FormatError(f"{path}: the shard's header is malformed ({problem}).") from problem
    if unknown := sorted(map(str, features - FEATURES)):
        raise FormatError(
            f"{path} needs features this program does not have: {', '.join(unknown)}. Upgrade SplitWiper."
        )
    if not isinstance(codec, str) or not is_encoding(codec) or (codec != "none") != ("codec" in features):
        raise FormatError(f"{path} is coded as {codec!r}, which this program does not know. Upgrade SplitWiper.")
    whole = mapped(path)
    columns: dict[str, Array] = {}
    for name, entry in header.items():
        if entry["dtype"] not in STORED:
            raise FormatError(f"{path}: column {name!r} has dtype {entry['dtype']!r}, which shards do not carry.")
        start, end = (base + offset for offset in entry["data_offsets"])
        try:
            columns[name] = whole[start:end].view(STORED[entry["dtype"]]).reshape(entry["shape"])
        except ValueError as problem:  # NumPy has no shapes of more than 64 dimensions
            raise FormatError(f"{path}: column {name!r} has a shape that cannot be read ({problem}).") from problem
    kept = {name: columns.pop(name) for name in [*columns] if is_fitted(name)}
    if any(values.dtype != np.float32 for values in kept.values()):
        raise FormatError(f"{path}: what its codec fitted is not float32.")
    fitted = fitted_in({name: torch.from_numpy(np.array(values)) for name, values in kept.items()})
    codes = columns.pop(LABEL_COLUMN, None)
    if codes is None or codes.ndim != 1 or codes.dtype != np.int32:
        raise FormatError(f"{path}: the shard has no column of label indices.")
    if any(c.ndim < 1 or len(c) != len(codes) for c in columns.values()):
        raise FormatError(f"{path}: columns of different length.")
    return Shard(path, len(codes), columns, codes, labels, codec, fitted)


def check_shard(
    shard: Shard, columns: Sequence[Column], codec: str = "none", *, client: str = "", largest: float = LARGEST
) -> None:
    """Check an opened shard against the cut, value by value, in bounded memory.

    Args:
        shard: the shard.
        columns: the columns that cross the cut.
        codec: the encoding of the federation's shards.
        client: the client's name, for messages.
        largest: the largest absolute value that is accepted.

    Raises:
        DataError: the columns do not fit the cut, the codec differs, there are no rows, values are not finite or too
            large, label indices are outside the table, or a label in the table has no row.
    """
    if shard.codec != codec:
        raise DataError(f"the shard is coded as {shard.codec!r}, this federation's are as {codec!r}.")
    wanted = {c.name: stored(c, codec) for c in columns}
    if set(shard.columns) != set(wanted):
        raise DataError(f"the shard carries {sorted(shard.columns)}, the cut sends {sorted(wanted)}.")
    if not shard.rows:
        raise DataError("the shard has no rows; a client with nothing left withdraws its shard instead.")
    if odd := shard.fitted.keys() - wanted.keys():
        raise DataError(f"the shard has something fitted to {sorted(odd)[:3]}, and the cut sends {sorted(wanted)}.")
    for column in columns:
        check_fitted(column, codec, shard.fitted.get(column.name, {}))
        values, there = shard.columns[column.name], wanted[column.name]
        if values.shape[1:] != there.shape or values.dtype != np.dtype(STORED[there.dtype]):
            raise DataError(f"column {column.name!r} is {values.dtype}{list(values.shape[1:])}, the cut sends {there}.")
        for value, where in _farthest_values(shard, column):
            if not value <= largest:
                raise too_large(client, column.name, value, largest, where=where)
        if values.dtype.kind == "b":
            for _, part in _blocks(values):
                if (part.view(np.uint8) > 1).any():
                    raise DataError(f"column {column.name!r} has truth values that are neither true nor false.")
    for label in shard.labels:
        if label.fault:
            raise DataError(label.fault)
    _check_codes(shard)


def farthest_value(shard: Shard, columns: Sequence[Column]) -> float:
    """Return the largest absolute value of a checked shard's decoded rows, in bounded memory."""
    return max((value for column in columns for value, _ in _farthest_values(shard, column)), default=0.0)


def _farthest_values(shard: Shard, column: Column) -> Iterator[tuple[float, str]]:
    """Yield the largest absolute value of each part of a decoded column, and where that part is, in words.

    Rows are decoded for this, since nobody can tell what a stored byte stands for but the codec; unless the codec can
    tell from what it fitted.
    """
    codec, fitted = codec_for(column, shard.codec), shard.fitted.get(column.name, {})
    if isinstance(codec, BoundedCodec):
        yield codec.reach(fitted), ""
        return
    for start, part in _blocks(shard.columns[column.name], math.prod(column.shape) * 4):
        where = f" in rows {start} to {start + len(part) - 1}"
        if codec is None:
            yield _farthest(part), where
            continue
        rows = decode(torch.from_numpy(np.array(part)), column, shard.codec, fitted)
        if tuple(rows.shape) != (len(part), *column.shape) or not rows.is_floating_point():
            raise DataError(f"column {column.name!r} decodes to {rows.dtype} {list(rows.shape)}, not to {column}.")
        yield farthest(rows), where


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


def _farthest(values: Array) -> float:
    """Return the largest absolute value; NaN if there is a NaN, 0 for arrays that are not floats."""
    if values.dtype.kind != "f" or not values.size:
        return 0.0
    return float(np.maximum(np.abs(values.max()), np.abs(values.min())))


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the parsed header and the data's offset; safetensors itself checks offsets against the file's size."""
    try:
        check_regular(path)  # reading a pipe would block
        with opened(path) as file:
            size = int.from_bytes(file.read(8), "little")
            if size > _MAX_HEADER:  # before parsing, which takes many times its size in memory
                raise FormatError(f"{path}: a header of {size} bytes is beyond the limit of {_MAX_HEADER}.")
            with safetensors.safe_open(path, framework="numpy"):
                pass
            header: dict[str, Any] = json.loads(file.read(size))
    except (safetensors.SafetensorError, ValueError, RecursionError) as problem:
        raise CorruptError(f"{path} is truncated or corrupted ({problem}).") from problem
    return header, 8 + size
