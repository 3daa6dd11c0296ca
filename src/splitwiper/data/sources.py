"""Sources of rows: data by client name, in memory or from a function that is called when a client's turn comes."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from splitwiper.data.datasets import RANDOM
from splitwiper.data.rows import Data, Rows, as_rows
from splitwiper.errors import DataError, SplitWiperError
from splitwiper.wire import Label

Source = Data | Callable[[], Data]
"""Data, or a function without arguments that returns it."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Pattern of client names."""


def by_client(datasets: Any) -> list[tuple[str, Any]]:
    """Return clients' names and their data.

    Raises:
        DataError: the argument is not data by client name; the message shows how to give it.
    """
    how = "give data by client name: {'north': (inputs, labels)}"
    if isinstance(datasets, Mapping):
        return list(datasets.items())
    if not isinstance(datasets, Iterable) or isinstance(datasets, str | bytes | Dataset | np.ndarray | Tensor):
        raise DataError(f"a {type(datasets).__name__} does not say whose data it is: {how}.")
    pairs = []
    for pair in datasets:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise DataError(f"a {type(datasets).__name__} must hold pairs of a client's name and its data: {how}.")
        pairs.append((pair[0], pair[1]))
    return pairs


def check_names(names: Iterable[str], *, known: Iterable[str]) -> None:
    """Refuse names that cannot name a folder, come twice, or differ from another only in case.

    Raises:
        DataError: a name is unsuitable; the message says which.
    """
    taken = {name.lower(): name for name in known}  # some file systems do not tell cases apart
    seen = set[str]()
    for name in names:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise DataError(
                f"client name {name!r}: use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit."
            )
        if name in seen:
            raise DataError(f"client {name!r} is named twice; give all its rows at once.")
        seen.add(name)
        if taken.setdefault(name.lower(), name) != name:
            raise DataError(f"client {name!r} differs from {taken[name.lower()]!r} in case alone; choose another name.")


class Reader:
    """One client's data, in the form that clients store.

    Data in memory is converted once; the result of a function is not kept.
    """

    def __init__(self, source: Source, *, client: str, task: str, wide: bool = False) -> None:
        self.task, self._wide, self._client = task, wide, client
        self._source: Rows | Callable[[], Data]
        self._before: tuple[Counter[Label], int] | None = None
        if isinstance(source, tuple | Dataset) or not callable(source):  # a data set may be callable, too
            self._source = as_rows(source, task=task, wide=wide)
        else:
            self._source = source

    @property
    def lazy(self) -> bool:
        """Whether the data comes from a function."""
        return not isinstance(self._source, Rows)

    def rows(self) -> Rows:
        """Return the rows; a function is called every time.

        Raises:
            DataError: the function raised, the data cannot be learned from, or it was changed at random since the
                previous call.
        """
        if isinstance(self._source, Rows):
            return self._source
        try:
            data = self._source()
        except SplitWiperError:
            raise
        except Exception as problem:  # whatever the user's function raises
            raise DataError(
                f"the data of client {self._client!r} cannot be read: {type(problem).__name__}: {problem}. See to its "
                "source and learn again."
            ) from problem
        return self._steady(as_rows(data, task=self.task, wide=self._wide))

    def _steady(self, rows: Rows) -> Rows:
        """Refuse a function's rows if they are the same as before but changed at random; other rows are accepted."""
        # Equal counts of each label mean the same rows. A function may shuffle them, so their digests are summed, which
        # gives the same in any order.
        total = 0
        for number, label in enumerate(rows.labels):
            content = hashlib.blake2b(str(label.name).encode(), digest_size=16)
            for array in rows.inputs.values():
                content.update(array[number].tobytes())
            total += int.from_bytes(content.digest(), "big")
        labels = Counter(rows.labels)
        if self._before is not None and self._before[0] == labels and self._before[1] != total:
            raise DataError(
                f"the rows of client {self._client!r} are others when they are asked for again, under the same labels. "
                f"{RANDOM}"
            )
        self._before = labels, total
        return rows
