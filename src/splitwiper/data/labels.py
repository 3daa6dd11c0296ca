"""Bring labels into one form, a name or an integer for each row, and explain labels that are neither."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar
from unicodedata import normalize

import numpy as np
from torch import Tensor

from splitwiper.data.arrays import as_array
from splitwiper.errors import DataError
from splitwiper.formats import counted
from splitwiper.wire import Label
from splitwiper.wire.columns import Array

INTEGER = re.compile(r"0|-?[1-9][0-9]*")
"""Texts that read like an integer."""
_T = TypeVar("_T")
_ONE = "give one label per row"


def as_labels(labels: Any, task: str) -> tuple[Label, ...]:
    """Return one label for each row.

    Args:
        labels: names or integers: an array, a tensor, a column of a table or a list.
        task: the task they belong to.

    Raises:
        DataError: there are several values per row, fractions, booleans or missing labels, or an integer and the same
            digits as text.
    """
    values = _listed(labels)
    floats = [float(value) for value in values if isinstance(value, float | np.floating)]
    if floats:
        raise DataError(_about_floats(floats))
    known: dict[str | int, Label] = {}  # few distinct values, often repeated
    converted = []
    for value in values:
        if type(value) not in (str, int):  # True is an int, and equals 1
            converted.append(_label(value, task))
            continue
        if value not in known:
            known[value] = _label(value, task)
        converted.append(known[value])
    several = set(converted)
    if both := alike(several, several):
        raise DataError(f"{told_apart(*both[0])} Give all of them as integers, or all as texts.")
    return tuple(converted)


def other_kind(label: Label) -> Label | None:
    """Return the label of the other type that reads the same; None if there is none.

    >>> other_kind(Label("", 3)), other_kind(Label("", "3")), other_kind(Label("", "03"))
    (Label(task='', name='3'), Label(task='', name=3), None)
    """
    if isinstance(label.name, int):
        return Label(label.task, str(int(label.name)))
    return Label(label.task, int(label.name)) if len(label.name) < 20 and INTEGER.fullmatch(label.name) else None


def alike(labels: Iterable[Label], others: AbstractSet[Label]) -> list[tuple[Label, Label]]:
    """Return labels that ``others`` have as another type: an integer here, the same digits as text there."""
    pairs = []
    for label in set(labels):
        other = other_kind(label)
        if other is not None and other in others:
            pairs.append((label, other))
    return pairs


def told_apart(label: Label, other: Label) -> str:
    """Return a sentence that says that two labels read the same but are different."""
    number, text = sorted((label.name, other.name), key=lambda name: isinstance(name, str))
    return f"the integer {number!r} and the text {text!r} would be two labels, though they read the same."


def as_learned(name: _T) -> _T:
    """Return a label's name in the one form that is stored: a letter with an accent can be written in several ways."""
    return normalize("NFC", name) if isinstance(name, str) else name  # type: ignore[return-value]


def _listed(labels: Any) -> Sequence[Any]:
    if isinstance(labels, AbstractSet | Mapping):  # a list of a mapping would be its keys
        raise DataError(f"labels are a {type(labels).__name__}, which does not follow the order of rows; {_ONE}.")
    if isinstance(labels, Tensor):
        labels = as_array(labels, "labels")
    if hasattr(labels, "columns"):  # a table; a list of it would be its columns' names
        labels = np.asarray(labels)
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise DataError(f"labels are {labels!r}, a single {type(labels).__name__}; {_ONE}.")
    if isinstance(labels, np.ndarray):
        return list(_flat(labels).tolist())
    values = [as_array(value, "labels") if isinstance(value, Tensor) else value for value in labels]
    if values and all(isinstance(value, list | tuple | np.ndarray) and np.ndim(value) for value in values):
        try:
            return list(_flat(np.array(values)).tolist())
        except ValueError as problem:
            raise DataError(f"the rows have different numbers of labels ({problem}); {_ONE}.") from problem
    return [value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value for value in values]


def _flat(array: Array) -> Array:
    """Flatten labels to one dimension; a single column is accepted."""
    if array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1):
        return array.reshape(-1)
    about = f"labels have shape {list(array.shape)}; {_ONE}"
    if array.ndim == 2 and array.dtype.kind in "biuf" and np.isin(array, (0, 1)).all():
        if (array.sum(axis=1) == 1).all():
            raise DataError(f"{about}. These look one-hot: give labels.argmax(axis=1).")
        raise DataError(f"{about}. Rows with several labels (multi-label classification) are not supported.")
    raise DataError(f"{about}. SplitWiper learns to tell labels apart; several targets per row are not supported.")


def _about_floats(values: Sequence[float]) -> str:
    """Explain why floats are not labels: classes written as floats, or the targets of a regression."""
    missing = int(np.isnan(values).sum())
    if missing:
        return f"labels are missing (NaN) in {counted(missing, 'row')}; drop these rows or fill the labels in."
    fractions = [value for value in values if not value.is_integer()]
    if fractions:
        return (
            f"labels are floats, such as {fractions[0]}: SplitWiper classifies; regression is not supported. Classes "
            "are names or integers."
        )
    return (
        f"labels are floats, such as {values[0]}. SplitWiper learns to tell labels apart: if these number "
        "classes, give them as integers; if they are measured values, that is regression, which is not supported."
    )


def _label(value: Any, task: str) -> Label:
    if isinstance(value, Tensor | np.generic):
        value = value.item()
    if value is None:
        raise DataError("a label is None: drop the rows without a label, or fill it in.")
    if isinstance(value, bool):
        raise DataError(f"label {value!r} is a truth value; give names, or 0 and 1 (labels.astype(int)).")
    if not isinstance(value, str | int):
        raise DataError(f"label {value!r} ({type(value).__name__}) is neither a name nor an integer.")
    if value == "":
        raise DataError("a label is an empty text: drop the rows without a label, or give it a name.")
    label = Label(task, as_learned(value))
    if label.fault:
        raise DataError(label.fault)
    return label
