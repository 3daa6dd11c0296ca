"""A client's rows: adding them, finding them, and permanently removing them from its slices."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from splitwiper.client.content import (
    MAC_COLUMN,
    Form,
    check_comparable,
    macs_in_form,
    rewrite_slice,
    row_id,
    row_macs,
    slice_of,
)
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
        self._name = store.root.name
        self._checked: tuple[object, dict[int, Shard]] | None = None

    # --- what rows look like -------------------------------------------------------------------------------

    def _spec(self) -> Mapping[str, Any]:
        text = self._store.database.meta("inputs")
        if not text:
            return {"call": "one", "columns": []}
        found = parsed(text)
        if not isinstance(found, dict) or found.keys() != {"call", "columns"}:
            raise CorruptError(f"what the rows of client {self._name!r} look like was altered: restore a backup.")
        return found

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
        """Return rows with their columns in the order of the earlier ones, where both have names.

        Raises:
            DataError: the columns differ.
        """
        order = self.features
        if not self.columns:  # no rows are held, so tables with other columns are accepted
            order = {name: order[name] for name in order if set(order[name]) == set(rows.features.get(name, ()))}
        return rows.arranged(order, f"client {self._name!r}")

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
        kinds = {rows.labels, tuple(others[label] for label in rows.labels)}
        for labelled in (dataclasses.replace(rows, labels=labels) for labels in kinds):
            found: list[Sequence[bytes | None]] = [row_macs(self.arranged(labelled), key)]
            for form in self._earlier_forms():
                turns = (labelled.arranged(order, f"client {self._name!r}") for order in form.orders(rows))
                same = [labelled, self.arranged(labelled), *turns]
                for turned in {json.dumps(one.features): one for one in same}.values():
                    found += macs_in_form(turned, form.call, form.columns, key)
            for macs in found:
                gone = [was or mac in suppressed for was, mac in zip(gone, macs, strict=True)]
        return gone

    # --- looking -------------------------------------------------------------------------------------------

    def slices(self, *, again: bool = False) -> dict[int, Shard]:
        """Return the slice files, opened and checked; rows on the suppression list may still be in them.

        Checking reads every byte, so the result is kept for as long as neither the records nor the files change.

        Args:
            again: check even so.
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
        marks = []
        for number, record in records.items():
            path = self._store.root / "slices" / record.file
            try:
                found = path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                found = None
            marks.append((number, record, found and (found.st_ino, found.st_size, found.st_mtime_ns)))
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
            for row, code in zip(np.asarray(part.columns[MAC_COLUMN]), part.codes, strict=True):
                if (value := row.tobytes()) not in gone:
                    yield value, part.labels[code]

    def ids(self) -> dict[int, str | int]:
        """Return row ids and their labels."""
        return {row_id(value): label.name for value, label in self.surviving()}

    def audit(self, key: bytes) -> None:
        """Check that every row matches its HMAC, is in its slice once, and was not forgotten.

        Raises:
            CorruptError: a slice fails; the message names it.
        """
        gone = self._store.suppressed()
        for number, part in self.slices(again=True).items():
            inputs = {column.name: part.columns[column.name] for column in self.columns}
            labels = tuple(part.labels[code] for code in part.codes)
            macs = row_macs(Rows(inputs, self.call, labels), key)
            if [m.tobytes() for m in np.asarray(part.columns[MAC_COLUMN])] != macs:
                raise CorruptError(f"slice {number} of client {self._name!r} holds rows that were altered.")
            if len(set(macs)) < len(macs) or any(m in gone or slice_of(m, self._config.slices) != number for m in macs):
                raise CorruptError(f"slice {number} of client {self._name!r} holds rows that do not belong there.")

    # --- taking in -----------------------------------------------------------------------------------------

    def check(self, rows: Rows) -> None:
        """Refuse rows that do not fit the earlier ones.

        Raises:
            DataError: rows do not fit; the message says how.
        """
        self._check_names(rows)
        for form in self._earlier_forms():
            check_comparable(rows, form, f"client {self._name!r}")
        rows = self.arranged(rows)
        if self.columns and (self.call, self.columns) != (rows.call, rows.columns):
            raise DataError(
                f"client {self._name!r}: rows are {', '.join(map(str, rows.columns))}, earlier ones were "
                f"{', '.join(map(str, self.columns))}; give rows of the same inputs, dtypes and shapes."
            )

    def _check_names(self, rows: Rows) -> None:
        """Refuse columns with names where rows are stored by position, or the reverse."""
        columns, names = {column.name: column.shape for column in self.columns}, self.features
        for column in rows.columns:
            given, kept = rows.features.get(column.name, ()), names.get(column.name, ())
            held = columns.get(column.name) if columns else (len(kept),) if kept else None
            if held == column.shape and not (given and kept):
                check_alike(given, kept, f"client {self._name!r}")

    def _check_kinds(self, rows: Rows, slices: Mapping[int, Shard]) -> None:
        """Refuse integer labels where the same digits are held as text, or the reverse."""
        if both := alike(rows.labels, {label for part in slices.values() for label in part.labels}):
            raise DataError(f"client {self._name!r}: {told_apart(*both[0])} It holds {both[0][1].name!r}: give that.")

    def add(self, rows: Rows, key: bytes) -> Added:
        """Add rows, in one step: new ones get ids, those already held keep theirs, forgotten ones are refused.

        Raises:
            DataError: labels are integers where the same digits are held as text, or the reverse.
        """
        slices = self.slices()
        self._check_kinds(rows, slices)
        gone, rows = self._forgotten(rows, key), self.arranged(rows)
        macs = row_macs(rows, key)
        suppressed = {mac for mac, was in zip(macs, gone, strict=True) if was}
        held = {m.tobytes() for part in slices.values() for m in np.asarray(part.columns[MAC_COLUMN])}
        fresh: dict[bytes, int] = {}  # HMAC -> row number
        for number, m in enumerate(macs):
            if m not in suppressed and m not in held:
                fresh.setdefault(m, number)
        if fresh:
            self._keep(rows, fresh, slices)
        ids = tuple(None if m in suppressed else row_id(m) for m in macs)
        refused = sum(i is None for i in ids)
        return Added(ids, len(fresh), len(macs) - refused - len(fresh), refused)

    def _keep(self, rows: Rows, fresh: Mapping[bytes, int], old: Mapping[int, Shard]) -> None:
        spec = {"call": rows.call, "columns": [[c.name, c.dtype, list(c.shape)] for c in rows.columns]}
        by_slice: dict[int, list[bytes]] = {}
        for m in fresh:
            by_slice.setdefault(slice_of(m, self._config.slices), []).append(m)
        changed = {}
        for number, members in sorted(by_slice.items()):
            here = np.array([fresh[m] for m in members])
            changed[number] = rewrite_slice(
                self._store.root / "slices",
                rows.columns,
                old.get(number),
                add=(
                    {name: array[here] for name, array in rows.inputs.items()},
                    np.frombuffer(b"".join(members), np.uint8).reshape(-1, 32),
                    [rows.labels[i] for i in here],
                ),
            )
        named = {"features": json.dumps({**self._remembered, **rows.features})} if rows.features else {}
        self._checked = None  # or what is open would keep erased files on the disk
        self._store.put_slices(changed, inputs=json.dumps(spec), **named)

    # --- taking out ----------------------------------------------------------------------------------------

    def erase_suppressed(self) -> None:
        """Rewrite the slices that still hold suppressed rows; everything computed from those rows goes with them."""
        gone = self._store.suppressed()
        changed = {}
        for number, part in self.slices().items() if gone else ():
            if any(m.tobytes() in gone for m in np.asarray(part.columns[MAC_COLUMN])):
                changed[number] = rewrite_slice(self._store.root / "slices", self.columns, part, without=gone)
        if changed:
            self._checked = None
            self._store.put_slices(changed)


def _names_in(kept: Mapping[str, Sequence[str]]) -> ColumnNames:
    return {name: tuple(map(str, names)) for name, names in kept.items()}


def _fitting(names: ColumnNames, columns: Sequence[Column]) -> ColumnNames:
    """Return the names that fit these columns: those with one name per feature of a row."""
    shapes = {column.name: column.shape for column in columns}
    return {name: found for name, found in names.items() if shapes.get(name) == (len(found),)}
