"""Tables whose columns have names: inputs are put in order by name, so that a column is never taken for another."""

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
"""The names of columns, for each input that is a table with named columns."""


@dataclass(frozen=True)
class Table:
    """Rows of numbers in named columns, as a ``.csv`` file has them. It can be used wherever an array can."""

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
    """Return the names of a table's columns: of a `Table`, or of any data frame; empty for what has none."""
    columns = getattr(inputs, "columns", None)
    if columns is None or isinstance(inputs, type) or not all(isinstance(name, str | int) for name in columns):
        return ()
    names = tuple(map(str, columns))
    if names == tuple(map(str, range(len(names)))):  # numbered, because they have no names
        return ()
    return names


def check_numbers(inputs: Any, what: str) -> None:
    """Refuse a table with columns that are not numbers.

    Raises:
        DataError: naming them.
    """
    dtypes = getattr(inputs, "dtypes", None)
    names = names_of(inputs)
    if not names or dtypes is None or len(dtypes) != len(names):
        return
    odd = [name for name, kind in zip(names, dtypes, strict=True) if getattr(kind, "kind", "f") not in "biuf"]
    if odd:
        shown = ", ".join(map(repr, odd[:5])) + ("…" if len(odd) > 5 else "")
        raise DataError(
            f"{what}: the columns {shown} are not numbers. Leave them out, or encode them as numbers first (one column "
            "per category; dates as days)."
        )


def arranged(array: Array, given: Sequence[str], wanted: Sequence[str], whose: str) -> Array:
    """Return the columns of an array in the order that somebody learned from.

    Args:
        array: rows × columns.
        given: the names of its columns.
        wanted: the names in the order that is wanted.
        whose: who learned from them, for messages.

    Raises:
        DataError: naming columns that are missing, unknown or there twice.
    """
    if tuple(given) == tuple(wanted):
        return array
    missing, extra = [n for n in wanted if n not in given], [n for n in given if n not in wanted]
    faults = [f"{n!r} is missing" for n in missing[:3]]
    for name in extra[:3]:
        hint = nearest(name, missing).strip()
        faults.append(f"{name!r} is unknown{f' ({hint})' if hint else ''}")
    faults += [f"{n!r} is there {times} times" for n, times in Counter(given).items() if times > 1]
    if faults:
        many, shown = counted(len(given), "column"), ", ".join(wanted[:20]) + ("…" if len(wanted) > 20 else "")
        more = "…" if len(missing) > 3 or len(extra) > 3 else ""
        raise DataError(
            f"{whose}: there are {many}, it learned from {len(wanted)}: {'; '.join(faults)}{more}. Give the columns "
            f"{shown}, in any order."
        )
    place = {name: number for number, name in enumerate(given)}
    return array[:, [place[name] for name in wanted]]
