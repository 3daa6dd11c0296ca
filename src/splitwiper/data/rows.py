"""Bring a client's data into one form: named arrays with rows in dimension 0, and a label per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from splitwiper.errors import DataError
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

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    @property
    def columns(self) -> tuple[Column, ...]:
        """Names, dtypes and shapes of one row."""
        return tuple(Column(n, _NAMES[a.dtype], a.shape[1:]) for n, a in self.inputs.items())


def pack(inputs: Mapping[str, Any], call: str) -> Any:
    """Named tensors or arrays as the model takes them."""
    if call == "kwargs":
        return dict(inputs)
    values = tuple(inputs.values())
    return values[0] if call == "one" else values


def as_rows(data: Data, *, task: str, wide: bool = False) -> Rows:
    """Bring data into one form and check it.

    Args:
        data: the data.
        task: what its labels belong to.
        wide: whether the model takes float64, which becomes float32 otherwise.

    Raises:
        DataError: no rows, uneven lengths, labels that are neither names nor integers, values that are not finite.
    """
    if isinstance(data, tuple) and len(data) == 2:
        inputs, labels = data
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        inputs, labels = _collect(data)
    else:
        raise DataError(
            f"cannot read data of type {type(data).__name__}: give (inputs, labels) or a map-style torch Dataset."
        )
    named, call = as_inputs(inputs, wide=wide)
    names = _labels(_listed(labels), task)
    lengths = {name: len(array) for name, array in named.items()} | {"labels": len(names)}
    if len(set(lengths.values())) > 1:
        raise DataError(f"inputs and labels have different numbers of rows: {lengths}.")
    if not names:
        raise DataError("the data has no rows; leave the client out until it has some.")
    return Rows(named, call, names)


def as_inputs(inputs: Any, *, wide: bool = False) -> tuple[dict[str, Array], str]:
    """Inputs by name, and how the model takes them; float64 is kept if they are to be wide."""
    if isinstance(inputs, Mapping):
        named, call = {str(k): _array(inputs[k], str(k), wide) for k in sorted(inputs, key=str)}, "kwargs"
    elif isinstance(inputs, tuple):
        named, call = {str(i): _array(v, f"input {i}", wide) for i, v in enumerate(inputs)}, "args"
    else:
        named, call = {"x": _array(inputs, "the inputs", wide)}, "one"
    if not named:
        raise DataError("there are no inputs.")
    return named, call


def _array(values: Any, what: str, wide: bool) -> Array:
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.dtype == np.float64 and not wide:  # whatever width torch has by default here and now
        with np.errstate(all="ignore"):  # what does not fit becomes infinite, and is refused below
            array = array.astype(np.float32)
    if array.dtype.newbyteorder("=") not in _NAMES:
        raise DataError(f"{what} have dtype {array.dtype}; give one of {', '.join(str(d) for d in _NAMES)}.")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind == "f":
        array = array + array.dtype.type(0)  # minus zero is zero: one row, not two
    if array.ndim < 1:
        raise DataError(f"{what} have no row dimension: dimension 0 counts rows.")
    finite = np.isfinite(array).all(axis=tuple(range(1, array.ndim))) if array.dtype.kind == "f" else np.True_
    if not finite.all():
        bad = np.flatnonzero(~finite)
        raise DataError(
            f"{what} have NaN or infinite values in {len(bad)} rows (first: row {bad[0]}); "
            "drop those rows or fill the values in."
        )
    return array


def _listed(labels: Any) -> Sequence[Any]:
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu().numpy()
    if isinstance(labels, np.ndarray):
        if labels.ndim != 1:
            raise DataError(f"labels have shape {list(labels.shape)}; give one label per row.")
        return list(labels.tolist())
    return list(labels)


def _labels(values: Sequence[Any], task: str) -> tuple[Label, ...]:
    plain = {v for v in values if type(v) in (str, int)}
    known = {v: _label(v, task) for v in plain}  # few, and repeated
    return tuple(known[v] if type(v) in (str, int) else _label(v, task) for v in values)


def _label(value: Any, task: str) -> Label:
    if isinstance(value, Tensor | np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"label {value!r} is neither a name nor an integer; convert labels with astype(int) or str.")
    label = Label(task, value)
    if label.fault:
        raise DataError(label.fault)
    return label


def _collect(data: Any) -> tuple[Any, list[Any]]:
    items = [data[i] for i in range(len(data))]
    if not items:
        raise DataError("the data has no rows; leave the client out until it has some.")
    if any(not isinstance(item, tuple | list) or len(item) != 2 for item in items):
        raise DataError("a dataset's items must be (input, label) pairs.")
    first = items[0][0]
    try:
        if isinstance(first, Mapping):
            inputs: Any = {k: np.stack([_plain(x[k]) for x, _ in items]) for k in first}
        elif isinstance(first, tuple):
            inputs = tuple(np.stack([_plain(x[k]) for x, _ in items]) for k in range(len(first)))
        else:
            inputs = np.stack([_plain(x) for x, _ in items])
    except (ValueError, KeyError, IndexError) as problem:
        raise DataError(f"the dataset's items do not stack into rows of one shape ({problem}).") from problem
    return inputs, [label for _, label in items]


def _plain(value: Any) -> Array:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
