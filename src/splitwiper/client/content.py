"""Rows by content: an HMAC addresses a row, orders it, assigns it to a slice, and keeps it out once forgotten.

A row is its inputs and its label. Identical rows are one row. The HMAC's key is the client's, so neither the
order of a shard nor a slice number tells the server anything about content.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any

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
    names = sorted(rows.inputs)
    head = b"".join(encode([c.name, c.dtype, *c.shape]) for c in sorted(rows.columns, key=lambda c: c.name))
    heads = {label: head + encode([label.text]) for label in set(rows.labels)}
    arrays = [np.ascontiguousarray(rows.inputs[name]) for name in names]
    return [
        hmac.digest(key, heads[label] + b"".join(array[i].tobytes() for array in arrays), "sha256")
        for i, label in enumerate(rows.labels)
    ]


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

    @property
    def width(self) -> int:
        """The number of values in a row."""
        return sum(math.prod(column.shape) for column in self.columns)

    def orders(self, rows: Rows) -> Iterator[ColumnNames]:
        """Yield the orders that the columns of these rows' tables may have had in this form.

        A table is matched by its input's name. If inputs come in another way now, names say nothing, so every order is
        tried that some table with the same columns had.
        """
        choices = []
        for name, columns in rows.features.items():
            alike = [kept for kept in self.features.values() if set(kept) == set(columns)] or [columns]
            own = self.features.get(name, ()) if rows.call == self.call else ()
            choices.append([own] if own in alike else [*dict.fromkeys(alike)])
        for choice in product(*choices):
            yield dict(zip(rows.features, choice, strict=True))


def check_comparable(rows: Rows, form: Form, whose: str) -> None:
    """Refuse rows if it is impossible to say whether they were forgotten in an earlier form.

    Args:
        rows: the rows to add.
        form: the form of the forgotten rows.
        whose: the client that forgot them, for messages.

    Raises:
        DataError: they cannot be compared; the message says what to give instead.
    """
    if sum(math.prod(column.shape) for column in rows.columns) != form.width:
        return
    if rows.call != form.call and math.factorial(len(rows.inputs)) > _ORDERS:
        ways = {"kwargs": "by keyword (a dict)", "args": "by position (a tuple)", "one": "as a single array"}
        raise DataError(
            f"{whose} has forgotten rows whose inputs came {ways[form.call]}. Whether these, {ways[rows.call]}, are "
            f"the same cannot be told: {len(rows.inputs)} inputs have too many orders. Give them {ways[form.call]}."
        )
    known = {frozenset(names) for names in rows.features.values()} & {frozenset(n) for n in form.features.values()}
    now, then = (
        [names for names in table.values() if has_order(names) and frozenset(names) not in known]
        for table in (rows.features, form.features)
    )
    if not (now and then):
        check_alike(now[0] if now else (), then[0] if then else (), whose)


def macs_in_form(rows: Rows, call: str, columns: Sequence[Column], key: bytes) -> Iterator[list[bytes | None]]:
    """Yield the HMACs that rows would have in another form: with other names, order, dtypes, shapes or columns.

    Inputs are tried in every order if they come by keyword now and came by position then, or the reverse: only
    then may the same row have them in another order.

    Yields:
        For each order, one HMAC per row; None for a row whose values do not fit that form.
    """
    flat = [np.ascontiguousarray(array).reshape(len(rows.labels), -1) for array in rows.inputs.values()]
    wanted = [math.prod(column.shape) for column in columns]
    if sum(array.shape[1] for array in flat) != sum(wanted):
        return
    for order in islice(permutations(flat), _ORDERS if call != rows.call else 1):
        inputs, same, start = {}, np.ones(len(rows.labels), bool), 0
        for column, size in zip(columns, wanted, strict=True):
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


def rows_digest(slices: Sequence[Shard]) -> bytes:
    """Return the digest of the surviving rows: everything that row order and noise may depend on."""
    macs = np.concatenate([np.asarray(s.columns[MAC_COLUMN]) for s in slices])
    return hashlib.sha256(macs[sort_order(macs)].tobytes()).digest()


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
    sources: list[tuple[Mapping[str, Array], Array, Array, Sequence[Label]]] = []  # columns, HMACs, codes, labels
    if old is not None:
        macs = np.asarray(old.columns[MAC_COLUMN])
        keep = np.array([m.tobytes() not in without for m in macs], bool)
        sources.append((old.columns, macs, np.where(keep, old.codes, -1), old.labels))
    if add is not None:
        table = in_order(add[2])
        number = {label: code for code, label in enumerate(table)}
        sources.append((add[0], add[1], np.array([number[label] for label in add[2]], np.int32), table))
    present = in_order(labels[code] for _, _, codes, labels in sources for code in np.unique(codes) if code >= 0)
    if not present:
        return None
    number = {label: code for code, label in enumerate(present)}
    places = np.concatenate(  # (source, row in it, code in the new table) of every row that stays
        [
            np.stack([np.full(len(rows), at), rows, np.array([number.get(x, -1) for x in labels])[codes[rows]]], axis=1)
            for at, (_, _, codes, labels) in enumerate(sources)
            for rows in [np.flatnonzero(codes >= 0)]
        ]
    )
    every = np.concatenate([macs[np.flatnonzero(codes >= 0)] for _, macs, codes, _ in sources])
    places = places[sort_order(every)]

    def blocks() -> Iterator[tuple[dict[str, Array], Array]]:
        for start in range(0, len(places), _BLOCK):
            block = places[start : start + _BLOCK]
            out = {}
            for column in (*columns, _MAC):
                out[column.name] = np.empty((len(block), *column.shape), DTYPES[column.dtype])
                for at, (values, macs, _, _) in enumerate(sources):
                    here = np.flatnonzero(block[:, 0] == at)
                    from_ = macs if column is _MAC else values[column.name]
                    out[column.name][here] = from_[block[here, 1]]
            yield out, block[:, 2].astype(np.int32)

    path = folder / files.random_name("slice")
    with files.atomic_file(path) as file:
        write_shard(file, columns=[*columns, _MAC], rows=len(places), labels=present, blocks=blocks())
    return FileRecord(path.name, files.file_digest(path), rows=len(places))
