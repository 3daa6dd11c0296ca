"""Tables with named columns: inputs are ordered by name, so that no column is mistaken for another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from splitwiper.errors import DataError, nearest
from splitwiper.formats import counted
from splitwiper.wire.columns import Array

ColumnNames = Mapping[str, tuple[str, ...]]
"""Column names of each input that is a table with named columns."""


@dataclass(frozen=True)
class Table:
    """Rows of numbers in named columns, as in a ``.csv`` file. It can be used wherever an array can."""

    columns: tuple[str, ...]
    values: Array
    """Rows × columns."""

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> Table:
        return Table(self.columns, self.values[rows])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.array(self.values, dtype=dtype) if copy else np.asarray(self.values, dtype=dtype)


def names_of(inputs: Any) -> tuple[str, ...]:
    """Return the column names of a `Table` or any data frame; empty for anything without names."""
    columns = getattr(inputs, "columns", None)
    if columns is None or isinstance(inputs, type):
        return ()
    for name in columns:  # other objects have columns, too, which are no names
        if not isinstance(name, str | int | float | tuple | np.generic):
            return ()
    return tuple(map(str, columns))


def has_order(names: Sequence[str]) -> bool:
    """Return whether names say more than positions: those of an array, or 0, 1, 2, … in order, do not.

    >>> has_order(("age", "pulse")), has_order(("1", "0")), has_order(("0", "1")), has_order(())
    (True, True, False, False)
    """
    return tuple(names) != tuple(map(str, range(len(names))))


def check_alike(given: Sequence[str], kept: Sequence[str], whose: str) -> None:
    """Refuse named columns if they came by position before, or the reverse: their order is then unknown.

    Args:
        given: the column names now.
        kept: the column names of the rows that were learned from.
        whose: the owner of those, for messages.

    Raises:
        DataError: only one of them has names; the message says what to give instead.
    """
    if has_order(given) == has_order(kept):
        return
    if has_order(given):
        raise DataError(
            f"{whose}: these columns have names ({_shown(given)}), those it learned from had none, so which is which "
            "is not known. Give an array (table.to_numpy()) with the columns in the order that they had then."
        )
    raise DataError(
        f"{whose}: it learned from columns with names ({_shown(kept)}), and an array does not say which is which. Give "
        "a data frame, or splitwiper.data.tables.Table(names, array)."
    )


def check_index(inputs: Any, labels: Any) -> None:
    """Refuse a table and labels with different row indices, as parts of data frames have after a shuffle.

    Raises:
        DataError: the indices differ.
    """
    rows_index, labels_index = getattr(inputs, "index", None), getattr(labels, "index", None)
    if (
        rows_index is None or labels_index is None or callable(rows_index) or callable(labels_index)
    ):  # lists have a method of this name
        return
    equals = getattr(rows_index, "equals", None)
    if rows_index is not labels_index and not (
        equals(labels_index) if callable(equals) else list(rows_index) == list(labels_index)
    ):
        raise DataError(
            "the inputs' index is not that of the labels, and rows are matched by position. Where they are in the same "
            "order, give labels.to_numpy(); otherwise put them in one order first (labels.loc[inputs.index])."
        )


def check_numbers(inputs: Any, subject: str) -> None:
    """Refuse a table with columns that are not numbers.

    Raises:
        DataError: there are such columns; the message names them.
    """
    dtypes = getattr(inputs, "dtypes", None)
    names = names_of(inputs)
    if not names or dtypes is None or len(dtypes) != len(names):
        return
    odd = []
    for name, dtype in zip(names, dtypes, strict=True):
        if getattr(dtype, "kind", "f") not in "biuf":  # a dtype of another library without a kind is tried
            odd.append(name)
    if odd:
        shown = ", ".join(map(repr, odd[:5])) + "…" * (len(odd) > 5)
        raise DataError(
            f"{subject}: the columns {shown} are not numbers. Leave them out, or encode them as numbers first (one "
            "column per category; dates as days)."
        )


def arranged(array: Array, given: Sequence[str], wanted: Sequence[str], whose: str) -> Array:
    """Return the columns of an array (rows × columns) in the order of the rows learned from, which are ``whose``.

    Raises:
        DataError: columns are missing, unknown or duplicated; the message names them.
    """
    if tuple(given) == tuple(wanted):
        return array
    missing = [name for name in wanted if name not in given]
    extra = [name for name in given if name not in wanted]
    faults = [f"{name!r} is missing" for name in missing[:3]]
    for name in extra[:3]:
        hint = nearest(name, missing).strip()
        faults.append(f"{name!r} is unknown{f' ({hint})' if hint else ''}")
    for name, times in Counter(given).items():
        if times > 1:
            faults.append(f"{name!r} is there {times} times")
    if faults:
        many, shown = counted(len(given), "column"), _shown(wanted)
        more = "…" if len(missing) > 3 or len(extra) > 3 else ""
        raise DataError(
            f"{whose}: there are {many}, it learned from {len(wanted)}: {'; '.join(faults)}{more}. Give the columns "
            f"{shown}, in any order."
        )
    position = {name: number for number, name in enumerate(given)}
    return array[:, [position[name] for name in wanted]]


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + "…" * (len(names) > 20)
