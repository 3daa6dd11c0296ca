"""Rows of the attacker or of the target: inputs, labels, and digests that identify them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from splitwiper.errors import DataError
from splitwiper.seeding import encode
from splitwiper.wire import Label
from splitwiper.wire.columns import Array

Inputs = Array | Mapping[str, Array]
"""A model's inputs: one array with rows in dimension 0, or several such arrays by name."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows: inputs, and a claimed label for each.

    Raises:
        DataError: there are no inputs, lengths differ, or a label is not a `Label`.
    """

    inputs: Inputs
    labels: Sequence[Label]

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        for label in self.labels:
            if not isinstance(label, Label):
                raise DataError(f"label {label!r} is not a splitwiper.wire.Label(task, name); name its task.")
        if not self.columns:
            raise DataError("there are no inputs; give an array, or several by name.")
        lengths = {name or "inputs": len(array) for name, array in self.columns.items()} | {"labels": len(self.labels)}
        if len(set(lengths.values())) > 1:
            raise DataError(f"inputs and labels have different numbers of rows: {lengths}.")

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def columns(self) -> dict[str, Array]:
        """The inputs by name; a single array gets the empty name."""
        if isinstance(self.inputs, Mapping):
            return {name: np.asarray(self.inputs[name]) for name in sorted(self.inputs)}
        return {"": np.asarray(self.inputs)}

    @cached_property
    def digests(self) -> tuple[bytes, ...]:
        """A digest of each row's inputs. The label is left out: a row with a new label is the same row."""
        arrays, head = [], b""
        for name, column in self.columns.items():
            array = _plain(column)
            arrays.append(array)
            head += encode([name, array.dtype.str, *array.shape[1:]])
        digests = []
        for row in zip(*arrays, strict=True):
            digests.append(hashlib.sha256(head + b"".join(value.tobytes() for value in row)).digest())
        return tuple(digests)

    def with_columns(self, columns: Mapping[str, Array]) -> Sample:
        """Return the same rows with other inputs."""
        return Sample(dict(columns) if isinstance(self.inputs, Mapping) else columns[""], self.labels)

    def take(self, rows: Array) -> Sample:
        """Return some of the rows, by index."""
        inputs = {name: array[rows] for name, array in self.columns.items()}
        labels = tuple(self.labels[row] for row in rows)
        return Sample(inputs if isinstance(self.inputs, Mapping) else inputs[""], labels)


def _plain(array: Array) -> Array:
    """Convert all floats to one dtype and all integers to another: how a row is stored must not change its digest."""
    if array.dtype.kind != "f":
        return np.ascontiguousarray(array, np.int64)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, np.float32) + np.float32(0)  # turns -0.0 into 0.0
