"""A file on its way out: read once, and digested beside being sent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from splitwiper.store.pieces import Passing

_PIECE = 1 << 20
_SAMPLES = 16
_SAMPLE = 1 << 16


class Sending:
    """A file that is being sent, perhaps in several goes.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.size = path.stat().st_size
        self._path = path
        self._passing = Passing()

    def mark(self) -> str:
        """What the server finds an interrupted upload of this file by, in hex: a digest of samples of it.

        Two files may have one mark. The digest of the whole, which the server checks in the end, tells them apart.
        """
        value = hashlib.sha256()
        last = max(0, self.size - _SAMPLE)
        with self._path.open("rb") as file:
            for number in range(_SAMPLES):
                file.seek(last * number // (_SAMPLES - 1))
                value.update(file.read(_SAMPLE))
        return value.hexdigest()

    def pieces(self, offset: int) -> Iterator[bytes]:
        """What is in the file from a place on."""
        with self._path.open("rb") as file, ThreadPoolExecutor(1, thread_name_prefix="digest") as beside:
            file.seek(offset)
            digesting: Future[None] | None = None
            while piece := file.read(_PIECE):
                if digesting is not None:
                    digesting.result()
                digesting = beside.submit(self._passing.feed, offset, piece)
                offset += len(piece)
                yield piece

    def digest(self) -> str:
        """The file's digest; what was sent has been digested already."""
        return self._passing.digest(self._path)
