"""The shard format: one safetensors file that is both upload and cache.

Fixed-width rows, one column per tensor that crosses the cut and a column of label indices, mapped into memory. Columns
may be encoded (`splitwiper.wire.codecs`); what a codec fitted to them is in the file too. The bytes are a pure
function of the rows: no ids, no generation, no time. The header has a version and required-feature flags; a reader
refuses flags it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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
from splitwiper.wire.codecs import Fitted, fitted_in, is_encoding, is_fitted, named, stored
from splitwiper.wire.columns import STORED, Array, Column
from splitwiper.wire.labels import Label
from splitwiper.wire.mapping import mapped

FORMAT = "splitwiper-shard"
VERSION = 1
FEATURES = frozenset({"codec"})
"""Feature flags that this reader understands."""
LABEL_COLUMN = "@label"
_MAX_HEADER = 16 << 20


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
    rowwise = [stored(column, codec) for column in columns]
    rowwise.append(Column(LABEL_COLUMN, "I32", ()))
    fixed = named(fitted or {})
    header, starts = _header(rowwise, rows, fixed, labels, codec)
    file.write(header)
    for name, tensor in fixed.items():
        file.seek(starts[name])
        file.write(tensor.numpy().astype("<f4").tobytes())

    def write(tensors: Mapping[str, Array], codes: Any, done: int) -> None:
        for column in rowwise:
            values = codes if column.name == LABEL_COLUMN else tensors[column.name]
            if values.shape != (len(codes), *column.shape):
                raise DataError(f"{column} got values of shape {list(values.shape)}: every row must fit the cut.")
            file.seek(starts[column.name] + done * column.width)
            file.write(np.ascontiguousarray(values, dtype=STORED[column.dtype]).data)

    done = 0
    with own_pool(1) as writer:
        under_way: Future[None] | None = None
        for tensors, codes in blocks:
            # Wait for the previous block first. So at most two blocks are in memory, one being written and one being
            # computed, and no other call moves the file's position between `seek` and `write` above.
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


def _header(
    rowwise: Sequence[Column], rows: int, fixed: Mapping[str, torch.Tensor], labels: Sequence[Label], codec: str
) -> tuple[bytes, dict[str, int]]:
    """Return the first bytes of a shard, and where in the file each tensor begins.

    The order of tensors and of keys is part of the format: equal rows must give equal bytes.
    """
    whole = [Column(column.name, column.dtype, (rows, *column.shape)) for column in rowwise]
    for name, tensor in fixed.items():
        whole.append(Column(name, "F32", tuple(tensor.shape)))
    # the widest dtypes first, so that every tensor is aligned without gaps, which safetensors does not allow
    whole.sort(key=lambda part: (-np.dtype(STORED[part.dtype]).itemsize, part.name))
    meta = {
        "format": FORMAT,
        "version": str(VERSION),
        "features": "[]" if codec == "none" else '["codec"]',
        "labels": json.dumps([label.text for label in labels]),
    }
    header: dict[str, Any] = {"__metadata__": meta if codec == "none" else {**meta, "codec": codec}}
    end = 0
    for part in whole:
        start, end = end, end + part.width
        header[part.name] = {"dtype": part.dtype, "shape": list(part.shape), "data_offsets": [start, end]}
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-(8 + len(raw)) % 64)  # data starts on a cache line
    places: dict[str, int] = {}
    for part in whole:
        places[part.name] = 8 + len(raw) + header[part.name]["data_offsets"][0]
    return len(raw).to_bytes(8, "little") + raw, places


def open_shard(path: Path) -> Shard:
    """Open a shard without reading its rows.

    Raises:
        FormatError: the file is not a shard, has a newer version, or unknown feature flags.
        CorruptError: the file is truncated or its header does not fit its size.
    """
    header, base = _read_header(path)
    labels, codec = _described(path, header.pop("__metadata__", None) or {})
    # safetensors has checked that the offsets are inside the file and fit the shapes; what a shard may hold is checked
    # here, so that nothing later meets a dtype or a shape that it does not expect
    whole = mapped(path)
    columns: dict[str, Array] = {}
    kept: dict[str, torch.Tensor] = {}
    for name, entry in header.items():
        values = _tensor(path, whole, base, name, entry)
        if not is_fitted(name):
            columns[name] = values
        elif values.dtype == np.float32:
            kept[name] = torch.from_numpy(np.array(values))
        else:
            raise FormatError(f"{path}: what its codec fitted is not float32.")
    codes = columns.pop(LABEL_COLUMN, None)
    if codes is None or codes.ndim != 1 or codes.dtype != np.int32:
        raise FormatError(f"{path}: the shard has no column of label indices.")
    for values in columns.values():
        if values.shape[:1] != codes.shape:
            raise FormatError(f"{path}: columns of different length.")
    return Shard(path, len(codes), columns, codes, labels, codec, fitted_in(kept))


def _described(path: Path, meta: Mapping[str, str]) -> tuple[tuple[Label, ...], str]:
    """Return the labels and the encoding in a shard's metadata."""
    if meta.get("format") != FORMAT:
        raise FormatError(f"{path} is a safetensors file but not a SplitWiper shard.")
    if str(meta.get("version")) not in map(str, range(1, VERSION + 1)):
        raise FormatError(
            f"{path} is a shard of version {meta.get('version')!r}, "
            f"this program reads up to {VERSION}: upgrade SplitWiper."
        )
    try:
        features = set(json.loads(meta.get("features", "[]")))
        labels = tuple(map(Label.parse, json.loads(meta["labels"])))
        codec = meta.get("codec", "none")
    except (ValueError, TypeError, KeyError, RecursionError, FormatError) as problem:
        raise FormatError(f"{path}: the shard's header is malformed ({problem}).") from problem
    if unknown := sorted(map(str, features - FEATURES)):
        raise FormatError(
            f"{path} needs features this program does not have: {', '.join(unknown)}. Upgrade SplitWiper."
        )
    # a codec must be announced as a feature: a reader from before codecs would take its bytes for values
    if not isinstance(codec, str) or not is_encoding(codec) or (codec != "none") != ("codec" in features):
        raise FormatError(f"{path} is coded as {codec!r}, which this program does not know. Upgrade SplitWiper.")
    return labels, codec


def _tensor(path: Path, whole: Array, base: int, name: str, entry: Mapping[str, Any]) -> Array:
    """Return one tensor of a mapped file, without reading its values."""
    if entry["dtype"] not in STORED:
        raise FormatError(f"{path}: column {name!r} has dtype {entry['dtype']!r}, which shards do not carry.")
    start, end = entry["data_offsets"]
    try:
        values: Array = whole[base + start : base + end].view(STORED[entry["dtype"]]).reshape(entry["shape"])
    except ValueError as problem:  # NumPy has no shapes of more than 64 dimensions
        raise FormatError(f"{path}: column {name!r} has a shape that cannot be read ({problem}).") from problem
    return values


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the parsed header and the data's offset; safetensors itself checks offsets against the file's size."""
    try:
        check_regular(path)  # reading a pipe would block
        with opened(path) as file:
            size = int.from_bytes(file.read(8), "little")
            if size > _MAX_HEADER:  # before parsing, which takes many times its size in memory
                raise FormatError(f"{path}: a header of {size} bytes is beyond the limit of {_MAX_HEADER}.")
            with safetensors.safe_open(path, framework="numpy"):
                pass  # opening it is the check
            header: dict[str, Any] = json.loads(file.read(size))
    except (safetensors.SafetensorError, ValueError, RecursionError) as problem:
        raise CorruptError(f"{path} is truncated or corrupted ({problem}).") from problem
    return header, 8 + size
