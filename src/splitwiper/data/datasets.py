"""Read a map-style dataset into memory: items are stacked, and some are read twice to check that they do not change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from splitwiper.data.arrays import as_array
from splitwiper.errors import DataError
from splitwiper.wire.columns import Array

TWICE = 64
"""Largest number of items of a dataset that are read twice."""
RANDOM = (
    "Rows must be the same each time they are read: forgotten ones are recognised by their content when they come "
    "back. Give the rows without random changes, and put augmentation into the model, behind the cut (see "
    "splitwiper.models.ShiftFlip)."
)


def check_kind(data: Any) -> None:
    """Refuse objects that are not datasets of pairs, and say how to make one of them.

    Raises:
        DataError: it is some other common object.
    """
    kind = type(data).__name__
    if isinstance(data, DataLoader):
        raise DataError("a DataLoader draws batches in its own order: give the dataset behind it, loader.dataset.")
    if isinstance(data, str) or hasattr(data, "__fspath__"):
        raise DataError(f"{str(data)!r} is a path: read the file first, splitwiper.data.files.read_data(path).")
    if hasattr(data, "columns") and not isinstance(data, Mapping):
        raise DataError(
            f"a whole table ({kind}) does not say which column holds the labels: give (table[features], table[label])."
        )
    if isinstance(data, Mapping):
        raise DataError(f"a dict (of {_keys(data)}) is not data of one client: give (inputs, labels).")
    if isinstance(data, np.ndarray | Tensor):
        raise DataError(f"there are inputs ({kind} of shape {list(data.shape)}) and no labels: give (inputs, labels).")
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        raise DataError(f"cannot read data of type {kind}: give (inputs, labels) or a map-style torch Dataset.")


def check_inputs(inputs: Any) -> None:
    """Refuse inputs that are not arrays, and say how to get some.

    Raises:
        DataError: they are a path, a dataset or None.
    """
    if isinstance(inputs, str) or hasattr(inputs, "__fspath__"):
        raise DataError(f"{str(inputs)!r} is a path: read the file first, splitwiper.data.files.read_inputs(path).")
    if inputs is None or isinstance(inputs, DataLoader | Dataset):
        kind = type(inputs).__name__
        raise DataError(f"inputs are a {kind}: give an array or a tensor with rows in dimension 0.")


def collect(data: Any) -> tuple[Any, list[Any]]:
    """Return the inputs and labels of all items.

    Raises:
        DataError: there are no items, or they are not pairs, have different shapes, or differ when read again.
    """
    check_kind(data)
    items = [_copied(data[number]) for number in range(len(data))]  # a dataset may reuse one buffer for all of them
    if not items:
        raise DataError("the data has no rows; leave the client out until it has some.")
    inputs, labels = [], []
    for number, item in enumerate(items):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"a dataset's items must be (input, label) pairs; item {number} is {_about(item)}")
        inputs.append(item[0])
        labels.append(item[1])
    _check_steady(data, items)
    try:
        return _stacked_inputs(inputs), labels
    except (ValueError, KeyError, IndexError) as problem:
        raise DataError(f"the dataset's items do not stack into rows of one shape ({problem}).") from problem


def _stacked_inputs(inputs: list[Any]) -> Any:
    """Stack the inputs of all items, in the form that the first has: a dict, a tuple or a single input."""
    first = inputs[0]
    if isinstance(first, Mapping):
        return {key: _stacked(map(itemgetter(key), inputs)) for key in first}
    if isinstance(first, tuple):
        return tuple(_stacked(map(itemgetter(index), inputs)) for index in range(len(first)))
    return _stacked(inputs)


def spread(count: int, most: int = TWICE) -> list[int]:
    """Return some positions out of `count`, including the first and the last.

    >>> spread(5, 3), spread(2, 3)
    ([0, 2, 4], [0, 1])
    """
    return sorted(set(np.linspace(0, count - 1, min(count, most)).astype(int).tolist()))


def _check_steady(data: Any, items: list[Any]) -> None:
    """Read some items again: with random augmentation, each would be a new row every time."""
    for number in spread(len(items)):
        if not _same(items[number], data[number]):
            raise DataError(f"item {number} of the dataset is another one when it is read again. {RANDOM}")


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)
    if isinstance(first, tuple | list) and isinstance(second, tuple | list):
        return len(first) == len(second) and all(map(_same, first, second))
    a, b = _plain(first), _plain(second)
    if a.dtype.hasobject or b.dtype.hasobject:
        return True  # refused later, with a message that says why
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _about(item: Any) -> str:
    """Describe an item that is not a pair, and say what to do."""
    if isinstance(item, Mapping):
        return (
            f"a dict with {_keys(item)}. Give inputs and labels apart: (np.stack([row[INPUT] for row in data]), "
            "[row[LABEL] for row in data])."
        )
    if isinstance(item, tuple | list):
        return f"a {type(item).__name__} of {len(item)}: leave out what is neither input nor label."
    return f"a {type(item).__name__}. Where inputs and labels are two arrays, give them as a tuple: (inputs, labels)."


def _keys(mapping: Mapping[Any, Any]) -> str:
    return ", ".join(map(repr, list(mapping)[:6])) + ("…" if len(mapping) > 6 else "")


def _copied(value: Any) -> Any:
    """Copy an item, so that its numbers do not change when the next one is read."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {name: _copied(part) for name, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return value


def _stacked(values: Iterable[Any]) -> Array:
    return np.stack(list(map(_plain, values)))


def _plain(value: Any) -> Array:
    return as_array(value, "the items of the dataset")
