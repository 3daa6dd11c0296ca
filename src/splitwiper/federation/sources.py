"""Where rows come from: clients by name, and data in memory or a function that is asked when a client's turn comes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from torch.utils.data import Dataset

from splitwiper.data.rows import Data, Rows, as_rows
from splitwiper.errors import DataError, SplitWiperError

Source = Data | Callable[[], Data]
"""Data, or a function without arguments that returns it."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a client may be called."""


def check_names(names: Iterable[str], *, known: Iterable[str]) -> None:
    """Refuse names that cannot be a folder's, come twice, or differ from another in case alone.

    Raises:
        DataError: naming the one.
    """
    taken = {name.lower(): name for name in known}
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
    """One client's data, in the form that clients take in.

    Data in memory is brought into that form once; what a function returns is not kept.
    """

    def __init__(self, source: Source, *, client: str, task: str, wide: bool = False) -> None:
        self.task, self._wide = task, wide
        self._client = client
        self._source: Rows | Callable[[], Data]
        if isinstance(source, tuple | Dataset) or not callable(source):
            self._source = as_rows(source, task=task, wide=wide)
        else:
            self._source = source

    @property
    def lazy(self) -> bool:
        """Whether a function is asked."""
        return not isinstance(self._source, Rows)

    def rows(self) -> Rows:
        """The rows; a function is called every time.

        Raises:
            DataError: the function raised, or the data cannot be learned from.
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
        return as_rows(data, task=self.task, wide=self._wide)
