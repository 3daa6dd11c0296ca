"""Rows by content: an HMAC addresses a row, orders it, assigns it to a slice, and keeps it out once forgotten.

A row is its inputs and its label. Identical rows are one row. The HMAC's key is the client's, so neither the
order of a shard nor a slice number tells the server anything about content.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain, islice, permutations, product
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from splitwiper.data.rows import Rows
from splitwiper.data.tables import ColumnNames, check_alike, has_order
from splitwiper.errors import DataError
from splitwiper.seeding import encode
from splitwiper.store import files
from splitwiper.store.client_store import FileRecord
from splitwiper.wire import Column, Label, Shard, write_shard
from splitwiper.wire.columns import DTYPES, Array
from splitwiper.wire.labels import in_order

MAC_COLUMN = "@mac"
_MAC = Column(MAC_COLUMN, "U8", (32,))
_BLOCK = 4096
_ORDERS = 720
"""Orders of a row's inputs that are tried: all of them, up to six inputs. Rows with more inputs are refused."""


def row_macs(rows: Rows, key: bytes) -> list[bytes]:
    """Return the HMAC of every row."""
    form = bytearray()  # of columns by name, so that the order in which a caller names them does not matter
    for column in sorted(rows.columns, key=attrgetter("name")):
        form += encode([column.name, column.dtype, *column.shape])
    prefixes = {label: bytes(form) + encode([label.text]) for label in set(rows.labels)}
    arrays = [np.ascontiguousarray(rows.inputs[name]) for name in sorted(rows.inputs)]
    macs = []
    for number, label in enumerate(rows.labels):
        content = bytearray(prefixes[label])
        for array in arrays:
            content += array[number].tobytes()
        macs.append(hmac.digest(key, content, "sha256"))
    return macs


@dataclass(frozen=True)
class Form:
    """The form of a client's rows before all of them were forgotten.

    Attributes:
        call: how the model took its inputs.
        columns: names, dtypes and shapes of one row.
        features: the names of tables' columns.
    """

    call: str
    columns: tuple[Column, ...]
    features: ColumnNames

    def orders(self, rows: Rows) -> Iterator[ColumnNames]:
        """Yield the orders that the columns of these rows' tables may have had in this form.

        A table is matched by its input's name. If inputs come in another way now, names say nothing, so every order is
        tried that some table with the same columns had.
        """
        choices = []
        for name, columns in rows.features.items():
            alike = [kept for kept in self.features.values() if set(kept) == set(columns)] or [columns]
            own = self.features.get(name, ()) if rows.call == self.call else ()
            choices.append([own] if own in alike else list(dict.fromkeys(alike)))
        for choice in product(*choices):
            yield dict(zip(rows.features, choice, strict=True))


def _width(columns: Iterable[Column]) -> int:
    """Return the number of values in a row."""
    return sum(math.prod(column.shape) for column in columns)


def check_comparable(rows: Rows, form: Form, whose: str) -> None:
    """Refuse rows if it is impossible to say whether they were forgotten in an earlier form."""
    if _width(rows.columns) != _width(form.columns):
        return
    if rows.call != form.call and math.factorial(len(rows.inputs)) > _ORDERS:
        ways = {"kwargs": "by keyword (a dict)", "args": "by position (a tuple)", "one": "as a single array"}
        raise DataError(
            f"{whose} has forgotten rows whose inputs came {ways[form.call]}. Whether these, {ways[rows.call]}, are "
            f"the same is unknown, because {len(rows.inputs)} inputs have too many orders. Give them {ways[form.call]}."
        )
    # tables with the same columns are matched by their names, whatever the order; only other tables can be confused
    known = set(map(frozenset, rows.features.values())) & set(map(frozenset, form.features.values()))
    check_alike(_unmatched(rows.features, known), _unmatched(form.features, known), whose)


def _unmatched(features: ColumnNames, known: AbstractSet[frozenset[str]]) -> Sequence[str]:
    """Return the columns of the first table with an order whose columns are not in ``known``; empty if none is."""
    for names in features.values():
        if has_order(names) and frozenset(names) not in known:
            return names
    return ()


def macs_in_form(rows: Rows, call: str, columns: Sequence[Column], key: bytes) -> Iterator[list[bytes | None]]:
    """Yield the HMACs that rows would have in another form: with other names, order, dtypes, shapes or columns.

    Inputs are tried in every order if they come by keyword now and came by position then, or the reverse: only
    then may the same row have them in another order.

    Yields:
        For each order, one HMAC per row; None for a row whose values do not fit that form.
    """
    if _width(rows.columns) != _width(columns):
        return
    # each input as rows × values, so that inputs can be cut anew whatever their shapes
    flat = [np.ascontiguousarray(array).reshape(len(rows.labels), -1) for array in rows.inputs.values()]
    for order in islice(permutations(flat), _ORDERS if call != rows.call else 1):
        inputs, same, start = {}, np.ones(len(rows.labels), bool), 0
        for column in columns:
            size = math.prod(column.shape)
            values, kept = _cast(order, start, start + size, DTYPES[column.dtype])
            inputs[column.name] = values.reshape(len(rows.labels), *column.shape)
            same &= kept
            start += size
        macs = row_macs(Rows(inputs, rows.call, rows.labels), key)
        yield [value if fits else None for value, fits in zip(macs, same, strict=True)]


def _cast(arrays: Sequence[Array], start: int, stop: int, dtype: Any) -> tuple[Array, Array]:
    """Cast a range of columns across adjacent tables to another dtype; also return which rows keep their values."""
    rows = len(arrays[0])
    parts, same, at = [np.empty((rows, 0), dtype)], np.ones(rows, bool), 0
    for array in arrays:
        piece = array[:, max(0, start - at) : max(0, stop - at)]
        with np.errstate(all="ignore"):
            cast = piece.astype(dtype)
        if cast.dtype.kind == "f":  # the forgotten rows may have been rounded
            cast = cast + cast.dtype.type(0)  # normalises minus zero to zero
            same &= np.isfinite(cast).all(axis=1)
        else:
            with np.errstate(all="ignore"):
                same &= (cast.astype(array.dtype) == piece).all(axis=1)
        parts.append(cast)
        at += array.shape[1]
    return np.concatenate(parts, axis=1), same


def slice_of(mac: bytes, slices: int) -> int:
    """Return the slice of a row: a function of only its content and the client's key."""
    return int.from_bytes(mac[:8], "big") % slices


def row_id(mac: bytes) -> int:
    """Return the row's id: 52 bits of its HMAC, which reveal neither its position nor what was forgotten."""
    return int.from_bytes(mac[8:15], "big") >> 4


def sort_order(macs: Array) -> Array:
    """Return the order of rows by HMAC (n × 32 bytes): the canonical order of slices and shards."""
    words = np.ascontiguousarray(macs).view(">u8")
    return np.lexsort(words.T[::-1])


def macs_in(slices: Iterable[Shard]) -> Iterator[bytes]:
    """Yield the HMAC of every row in slice files, suppressed or not."""
    for part in slices:
        for value in np.asarray(part.columns[MAC_COLUMN]):
            yield value.tobytes()


def mac_table(slices: Sequence[Shard]) -> Array:
    """Return the HMACs of all rows in slice files (n × 32 bytes)."""
    return np.concatenate([np.asarray(part.columns[MAC_COLUMN]) for part in slices])


def rows_digest(slices: Sequence[Shard]) -> bytes:
    """Return the digest of the surviving rows: everything that row order and noise may depend on."""
    macs = mac_table(slices)
    return hashlib.sha256(macs[sort_order(macs)].tobytes()).digest()


class _Source(NamedTuple):
    """Rows for a new slice: the numbers and labels of those that are kept."""

    columns: Mapping[str, Array]
    macs: Array
    kept: list[int]
    labels: list[Label]


def rewrite_slice(
    folder: Path,
    columns: Sequence[Column],
    old: Shard | None,
    *,
    without: AbstractSet[bytes] = frozenset(),
    add: tuple[Mapping[str, Array], Array, Sequence[Label]] | None = None,
) -> FileRecord | None:
    """Write a new slice file from an old one, without some rows and with others added; None when no row is left.

    Rows are in the order of their HMACs, so the bytes depend only on the rows. Memory is bounded by a block.
    """
    sources: list[_Source] = []
    if old is not None:
        source = _Source(old.columns, np.asarray(old.columns[MAC_COLUMN]), [], [])
        for number, (value, code) in enumerate(zip(macs_in([old]), old.codes, strict=True)):
            if value not in without:
                source.kept.append(number)
                source.labels.append(old.labels[code])
        sources.append(source)
    if add is not None:
        inputs, added, labels = add
        sources.append(_Source(inputs, added, list(range(len(labels))), list(labels)))
    table = in_order(chain.from_iterable(source.labels for source in sources))
    if not table:
        return None
    codes = {label: code for code, label in enumerate(table)}
    macs, places = [], []  # places: source, row in it and code of every row that stays (rows × 3)
    for number, source in enumerate(sources):
        kept = np.array(source.kept, np.int64)
        new_codes = np.fromiter(map(codes.__getitem__, source.labels), np.int64, len(kept))
        places.append(np.stack([np.full_like(kept, number), kept, new_codes], axis=1))
        macs.append(source.macs[kept])
    ordered = np.concatenate(places)[sort_order(np.concatenate(macs))]
    path = folder / files.random_name("slice")
    with files.atomic_file(path) as file:
        blocks = _blocks([*columns, _MAC], sources, ordered)
        write_shard(file, columns=[*columns, _MAC], rows=len(ordered), labels=table, blocks=blocks)
    return FileRecord(path.name, files.file_digest(path), rows=len(ordered))


def _blocks(
    columns: Sequence[Column], sources: Sequence[_Source], places: Array
) -> Iterator[tuple[dict[str, Array], Array]]:
    """Yield columns and codes of rows, a block at a time, from where ``places`` says they are."""
    for start in range(0, len(places), _BLOCK):
        block = places[start : start + _BLOCK]
        out = {}
        for column in columns:
            out[column.name] = np.empty((len(block), *column.shape), DTYPES[column.dtype])
            for number, source in enumerate(sources):
                here = np.flatnonzero(block[:, 0] == number)
                values = source.macs if column is _MAC else source.columns[column.name]
                out[column.name][here] = values[block[here, 1]]
        yield out, block[:, 2].astype(np.int32)
