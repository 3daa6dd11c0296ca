"""Bring a client's data into one form: named arrays with rows in dimension 0, and a label per row."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from splitwiper.data.arrays import as_array
from splitwiper.data.datasets import check_inputs, collect
from splitwiper.data.labels import as_labels
from splitwiper.data.tables import ColumnNames, Table, arranged, check_index, check_numbers, names_of
from splitwiper.errors import DataError
from splitwiper.formats import counted
from splitwiper.wire import Column, Label
from splitwiper.wire.columns import DTYPES, Array

Data = tuple[Any, Any] | Dataset[Any]
"""``(inputs, labels)``, or a map-style dataset of ``(input, label)`` items. Inputs are an array or a tensor, or a tuple
or dict of them (the model's positional or keyword arguments)."""

_NAMES = {np.dtype(kind): name for name, kind in DTYPES.items()}


@dataclass(frozen=True)
class Rows:
    """Inputs by name, how the model takes them, and labels."""

    inputs: dict[str, Array]
    call: str
    """'one': a single tensor; 'args': positional; 'kwargs': by keyword."""
    labels: tuple[Label, ...]
    features: ColumnNames = field(default_factory=dict)
    """The column names of each input that is a table with named columns."""

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    @property
    def columns(self) -> tuple[Column, ...]:
        """Names, dtypes and shapes of one row."""
        columns = []
        for name, array in self.inputs.items():
            columns.append(Column(name, _NAMES[array.dtype], array.shape[1:]))
        return tuple(columns)

    def arranged(self, wanted: ColumnNames, whose: str) -> Rows:
        """Return the same rows with the columns of their tables in the wanted order, where there is one.

        Raises:
            DataError: the columns differ.
        """
        inputs, features = dict(self.inputs), dict(self.features)
        for name, given in self.features.items():
            features[name] = tuple(wanted.get(name, given))
            inputs[name] = arranged(inputs[name], given, features[name], whose)
        return dataclasses.replace(self, inputs=inputs, features=features)

    @property
    def packed(self) -> Any:
        """The inputs as the model takes them; tables keep their column names."""
        inputs: dict[str, Array | Table] = dict(self.inputs)
        for name, columns in self.features.items():
            inputs[name] = Table(columns, self.inputs[name])
        return pack(inputs, self.call)


def pack(inputs: Mapping[str, Any], call: str) -> Any:
    """Return named tensors or arrays as the model takes them."""
    if call == "kwargs":
        return dict(inputs)
    values = tuple(inputs.values())
    return values[0] if call == "one" else values


def is_wide(half: nn.Module) -> bool:
    """Return whether a client half computes in float64."""
    return any(parameter.dtype == torch.float64 for parameter in half.parameters())


def as_rows(data: Data, *, task: str, wide: bool = False) -> Rows:
    """Bring data, with labels of a task, into one form and check it; float64 is kept only if ``wide``.

    Raises:
        DataError: there are no rows, lengths differ, labels are neither names nor integers, or values are not
            finite.
    """
    if isinstance(data, tuple) and len(data) == 2:
        inputs, labels = data
        for part in parts_of(inputs).values():
            check_index(part, labels)
    else:
        inputs, labels = collect(data)
    named, call = as_inputs(inputs, wide=wide)
    names = as_labels(labels, task)
    lengths = {name: len(array) for name, array in named.items()} | {"labels": len(names)}
    if len(set(lengths.values())) > 1:
        raise DataError(f"inputs and labels have different numbers of rows: {lengths}.")
    if not names:
        raise DataError("the data has no rows; leave the client out until it has some.")
    return Rows(named, call, names, column_names(inputs))


def as_inputs(inputs: Any, *, wide: bool = False) -> tuple[dict[str, Array], str]:
    """Return inputs by name, and how the model takes them; float64 is kept only if ``wide``."""
    check_inputs(inputs)
    call = "kwargs" if isinstance(inputs, Mapping) else "args" if isinstance(inputs, tuple) else "one"
    named = {}
    for name, values in parts_of(inputs).items():
        subject = {"kwargs": name, "args": f"input {name}", "one": "the inputs"}[call]  # in messages
        named[name] = _array(values, subject, wide)
    if not named:
        raise DataError("there are no inputs.")
    return named, call


def parts_of(inputs: Any) -> dict[str, Any]:
    """Return inputs as given, under the names that `as_inputs` gives them."""
    if isinstance(inputs, Mapping):
        return {str(name): inputs[name] for name in sorted(inputs, key=str)}
    if isinstance(inputs, tuple):
        return {str(number): value for number, value in enumerate(inputs)}
    return {"x": inputs}


def column_names(inputs: Any) -> ColumnNames:
    """Return the column names of every table among the inputs, under the names that `as_inputs` gives them."""
    named = {}
    for name, values in parts_of(inputs).items():
        if names := names_of(values):
            named[name] = names
    return named


def _array(values: Any, subject: str, wide: bool) -> Array:
    check_numbers(values, subject)
    array = as_array(values, subject)
    if array.dtype == np.float64 and not wide:  # whatever torch's default dtype is
        with np.errstate(all="ignore"):  # values out of range become infinite, and are refused below
            array = array.astype(np.float32)
    if array.dtype.newbyteorder("=") not in _NAMES:
        raise DataError(f"{subject} have dtype {array.dtype}; give one of {', '.join(map(str, _NAMES))}.")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind == "f":
        array = array + array.dtype.type(0)  # minus zero is zero: one row, not two
    if array.ndim < 1:
        raise DataError(f"{subject} have no row dimension: dimension 0 counts rows.")
    if array.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(array).all(axis=tuple(range(1, array.ndim))))  # rows
        if len(bad):
            raise DataError(
                f"{subject} have NaN or infinite values in {counted(len(bad), 'row')} (first: row {bad[0]}); "
                "drop those rows or fill the values in."
            )
    return array
