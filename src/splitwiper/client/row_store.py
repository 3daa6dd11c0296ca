"""A client's rows: adding them, finding them, and permanently removing them from its slices."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from splitwiper.client.content import (
    Form,
    check_comparable,
    macs_in,
    macs_in_form,
    rewrite_slice,
    row_id,
    row_macs,
    slice_of,
)
from splitwiper.client.fitted import labels_present
from splitwiper.config import ClientConfig
from splitwiper.data.labels import alike, other_kind, told_apart
from splitwiper.data.rows import Rows
from splitwiper.data.tables import ColumnNames, check_alike
from splitwiper.errors import CorruptError, DataError
from splitwiper.store import ClientStore, files
from splitwiper.store.client_store import FileRecord
from splitwiper.store.records import columns_in, parsed
from splitwiper.wire import Column, Label, Shard, open_shard


@dataclass(frozen=True)
class Added:
    """The outcome of adding rows to a client.

    Attributes:
        ids: each row's id, or None if it was refused. Ids follow from a row's content and the client's key, so they
            never change, and a row that is given twice has one.
        new: the number of rows that were not held before.
        held: the number of rows that were already held.
        refused: the number of rows that were forgotten earlier and may not come back.
    """

    ids: tuple[int | None, ...]
    new: int
    held: int
    refused: int


class RowStore:
    """The rows in a client's store. Rows on the suppression list count as gone, even while a slice still has them."""

    def __init__(self, store: ClientStore, config: ClientConfig) -> None:
        self._store = store
        self._config = config
        self._whose = f"client {store.root.name!r}"
        self._checked: tuple[object, dict[int, Shard]] | None = None

    # --- what rows look like -------------------------------------------------------------------------------

    def _spec(self) -> Mapping[str, Any]:
        text = self._store.database.meta("inputs")
        if not text:
            return {"call": "one", "columns": []}
        spec = parsed(text)
        if not isinstance(spec, dict) or spec.keys() != {"call", "columns"}:
            raise CorruptError(f"what the rows of {self._whose} look like was altered: restore a backup.")
        return spec

    @property
    def call(self) -> str:
        """How the half takes its inputs."""
        return str(self._spec()["call"])

    @property
    def columns(self) -> tuple[Column, ...]:
        """Names, dtypes and shapes of one row's inputs; empty before the first row."""
        return columns_in(self._spec()["columns"])

    @property
    def features(self) -> ColumnNames:
        """The names of tables' columns in the order that rows are stored in.

        The order is that of the first table. From then on it is part of the client's context, like its key, and is kept
        when those rows are forgotten. It does not apply to rows of another width that are held now.
        """
        kept, columns = self._remembered, self.columns
        return _fitting(kept, columns) if columns else kept

    @property
    def _remembered(self) -> ColumnNames:
        return _names_in(parsed(self._store.database.meta("features") or "{}"))

    def arranged(self, rows: Rows) -> Rows:
        """Return rows with their columns in the order of the earlier ones, where both have names."""
        order = dict(self.features)
        if not self.columns:  # no rows are held, so tables with other columns are accepted
            for name, names in self.features.items():
                if set(names) != set(rows.features.get(name, ())):
                    del order[name]
        return rows.arranged(order, self._whose)

    def _earlier_forms(self) -> Iterator[Form]:
        """Yield the forms that rows had before all of them were forgotten."""
        for text in parsed(self._store.database.meta("earlier_inputs") or "[]"):
            form = parsed(text)
            columns = columns_in(form["columns"])
            yield Form(str(form["call"]), columns, _fitting(_names_in(form.get("features", {})), columns))

    def _forgotten(self, rows: Rows, key: bytes) -> list[bool]:
        """Return for each row whether it was forgotten, in this form or an earlier one.

        Labels are tried both as an integer and as the text that reads the same. The columns of a table are tried in the
        order they have now, in the order they are stored in, and in the order they had then.
        """
        suppressed, gone = self._store.suppressed(), [False] * len(rows)
        if not suppressed:
            return gone
        others = {label: other_kind(label) or label for label in set(rows.labels)}
        for labels in {rows.labels, tuple(map(others.__getitem__, rows.labels))}:
            for macs in self._possible_macs(dataclasses.replace(rows, labels=labels), key):
                for number, value in enumerate(macs):
                    gone[number] |= value in suppressed
        return gone

    def _possible_macs(self, rows: Rows, key: bytes) -> Iterator[Sequence[bytes | None]]:
        """Yield the HMACs that rows may have had, one per row, or None where a row does not fit a form."""
        arranged = self.arranged(rows)
        yield row_macs(arranged, key)
        for form in self._earlier_forms():
            turns = [rows, arranged]
            turns += [rows.arranged(order, self._whose) for order in form.orders(rows)]
            for turned in {json.dumps(turn.features): turn for turn in turns}.values():  # each order once
                yield from macs_in_form(turned, form.call, form.columns, key)

    # --- looking -------------------------------------------------------------------------------------------

    def slices(self, *, again: bool = False) -> dict[int, Shard]:
        """Return the slice files, opened and checked; rows on the suppression list may still be in them.

        Checking reads every byte, so the result is kept for as long as neither the records nor the files change.
        """
        records = self._store.slices()
        if not again and self._checked is not None and self._checked[0] == self._marks(records):
            return dict(self._checked[1])
        while True:
            try:
                marks, opened = self._marks(records), self._opened(records)
            except CorruptError:
                if (now := self._store.slices()) == records:
                    raise
                records = now  # another process rewrote them meanwhile
            else:
                self._checked = marks, opened
                return dict(opened)

    def _marks(self, records: Mapping[int, FileRecord]) -> object:
        """Return what distinguishes slice files without reading them: inode, size and time of change."""
        marks: list[object] = []
        for number, record in records.items():
            marks += [number, record]
            with suppress(FileNotFoundError, NotADirectoryError):
                state = (self._store.root / "slices" / record.file).lstat()
                marks += [state.st_ino, state.st_size, state.st_mtime_ns]
        return marks

    def _opened(self, records: Mapping[int, FileRecord]) -> dict[int, Shard]:
        out = {}
        for number, record in records.items():
            path = self._store.root / "slices" / record.file
            damaged = CorruptError(f"{path} is missing or damaged: restore it from a backup of the client's folder.")
            try:
                if files.file_digest(path) != record.digest:
                    raise damaged
                out[number] = open_shard(path)  # a shard with the rows' HMACs as one more column
            except FileNotFoundError as problem:  # at any moment: another process may replace it
                raise damaged from problem
        return out

    def surviving(self) -> Iterator[tuple[bytes, Label]]:
        """Yield the HMAC and label of every row that is not suppressed."""
        gone = self._store.suppressed()
        for part in self.slices().values():
            for value, code in zip(macs_in([part]), part.codes, strict=True):
                if value not in gone:
                    yield value, part.labels[code]

    def labels(self) -> Counter[Label]:
        """Return the labels of surviving rows, and how many rows have each."""
        return Counter(label for _, label in self.surviving())

    def ids(self) -> dict[int, str | int]:
        """Return row ids and their labels."""
        return {row_id(value): label.name for value, label in self.surviving()}

    def audit(self, key: bytes) -> None:
        """Check that every row matches its HMAC, is in its slice once, and was not forgotten."""
        gone = self._store.suppressed()
        for number, part in self.slices(again=True).items():
            inputs = {column.name: part.columns[column.name] for column in self.columns}
            labels = tuple(part.labels[code] for code in part.codes)
            macs = row_macs(Rows(inputs, self.call, labels), key)
            if list(macs_in([part])) != macs:
                raise CorruptError(f"slice {number} of {self._whose} holds rows that were altered.")
            here = {slice_of(value, self._config.slices) for value in macs}
            if len(set(macs)) < len(macs) or not gone.isdisjoint(macs) or here - {number}:
                raise CorruptError(f"slice {number} of {self._whose} holds rows that do not belong there.")

    # --- taking in -----------------------------------------------------------------------------------------

    def check(self, rows: Rows) -> None:
        """Refuse rows that do not fit the earlier ones."""
        self._check_names(rows)
        for form in self._earlier_forms():
            check_comparable(rows, form, self._whose)
        rows = self.arranged(rows)
        if self.columns and (self.call, self.columns) != (rows.call, rows.columns):
            raise DataError(
                f"{self._whose}: rows are {', '.join(map(str, rows.columns))}, earlier ones were "
                f"{', '.join(map(str, self.columns))}; give rows of the same inputs, dtypes and shapes."
            )

    def _check_names(self, rows: Rows) -> None:
        """Refuse columns with names where rows are stored by position, or the reverse."""
        shapes = {column.name: column.shape for column in self.columns}
        for column in rows.columns:
            given, kept = rows.features.get(column.name, ()), self.features.get(column.name, ())
            if shapes:
                comparable = shapes.get(column.name) == column.shape
            else:  # no rows are held: only the names are left of those before
                comparable = bool(kept) and column.shape == (len(kept),)
            if comparable and not (given and kept):
                check_alike(given, kept, self._whose)

    def add(self, rows: Rows, key: bytes) -> Added:
        """Add rows, in one step: new ones get ids, those already held keep theirs, forgotten ones are refused."""
        slices = self.slices()
        if both := alike(rows.labels, set(labels_present(list(slices.values())))):
            raise DataError(f"{self._whose}: {told_apart(*both[0])} It holds {both[0][1].name!r}: give that.")
        gone, rows = self._forgotten(rows, key), self.arranged(rows)
        held = set(macs_in(slices.values()))
        fresh: dict[bytes, int] = {}  # HMAC -> row number
        ids: list[int | None] = []
        for number, (value, was_forgotten) in enumerate(zip(row_macs(rows, key), gone, strict=True)):
            ids.append(None if was_forgotten else row_id(value))
            if not was_forgotten and value not in held:
                fresh.setdefault(value, number)
        by_slice: dict[int, list[bytes]] = {}
        for value in fresh:
            by_slice.setdefault(slice_of(value, self._config.slices), []).append(value)
        changed = {}
        for slice_number, macs in sorted(by_slice.items()):
            here = [fresh[value] for value in macs]
            inputs = {name: array[here] for name, array in rows.inputs.items()}
            added = inputs, np.frombuffer(b"".join(macs), np.uint8).reshape(-1, 32), [rows.labels[i] for i in here]
            folder = self._store.root / "slices"
            changed[slice_number] = rewrite_slice(folder, rows.columns, slices.get(slice_number), add=added)
        if changed:
            spec = {"call": rows.call, "columns": [[c.name, c.dtype, list(c.shape)] for c in rows.columns]}
            meta = {"inputs": json.dumps(spec)}
            if rows.features:
                meta["features"] = json.dumps({**self._remembered, **rows.features})
            self._checked = None  # or what is open would keep erased files on the disk
            self._store.put_slices(changed, **meta)
        refused = ids.count(None)
        return Added(tuple(ids), len(fresh), len(ids) - refused - len(fresh), refused)

    # --- taking out ----------------------------------------------------------------------------------------

    def erase_suppressed(self) -> None:
        """Rewrite the slices that still hold suppressed rows; everything computed from those rows goes with them."""
        gone = self._store.suppressed()
        changed = {}
        for number, part in self.slices().items() if gone else ():
            if not gone.isdisjoint(macs_in([part])):
                changed[number] = rewrite_slice(self._store.root / "slices", self.columns, part, without=gone)
        if changed:
            self._checked = None
            self._store.put_slices(changed)


def _names_in(kept: Mapping[str, Sequence[str]]) -> ColumnNames:
    return {name: tuple(map(str, names)) for name, names in kept.items()}


def _fitting(names: ColumnNames, columns: Sequence[Column]) -> ColumnNames:
    """Return the names that fit these columns: those with one name per feature of a row."""
    fitting = {}
    for column in columns:
        if column.name in names and column.shape == (len(names[column.name]),):
            fitting[column.name] = names[column.name]
    return fitting
