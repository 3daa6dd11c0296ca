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
    kinds = (str, int, float, tuple, np.generic)
    if columns is None or isinstance(inputs, type) or not all(isinstance(name, kinds) for name in columns):
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
        kept: the column names before.
        whose: the owner of the rows learned from, for messages.

    Raises:
        DataError: one has names and the other has none; the message says what to give instead.
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
    one, other = (getattr(part, "index", None) for part in (inputs, labels))
    if one is None or other is None or callable(one) or callable(other):  # lists have a method of this name
        return
    equals = getattr(one, "equals", None)
    if one is not other and not (equals(other) if callable(equals) else list(one) == list(other)):
        raise DataError(
            "the inputs' index is not that of the labels, and rows are matched by position. Where they are in the same "
            "order, give labels.to_numpy(); otherwise put them in one order first (labels.loc[inputs.index])."
        )


def check_numbers(inputs: Any, what: str) -> None:
    """Refuse a table with columns that are not numbers.

    Raises:
        DataError: there are such columns; the message names them.
    """
    dtypes = getattr(inputs, "dtypes", None)
    names = names_of(inputs)
    if not names or dtypes is None or len(dtypes) != len(names):
        return
    odd = [name for name, kind in zip(names, dtypes, strict=True) if getattr(kind, "kind", "f") not in "biuf"]
    if odd:
        shown = ", ".join(map(repr, odd[:5])) + "…" * (len(odd) > 5)
        raise DataError(
            f"{what}: the columns {shown} are not numbers. Leave them out, or encode them as numbers first (one column "
            "per category; dates as days)."
        )


def arranged(array: Array, given: Sequence[str], wanted: Sequence[str], whose: str) -> Array:
    """Return the columns of an array in the order of the rows learned from.

    Args:
        array: rows × columns.
        given: the names of its columns.
        wanted: the names in the wanted order.
        whose: the owner of the rows learned from, for messages.

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
    place = {name: number for number, name in enumerate(given)}
    return array[:, [place[name] for name in wanted]]


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + "…" * (len(names) > 20)
