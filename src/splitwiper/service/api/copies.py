"""Copies of the model that clients are downloading."""

from __future__ import annotations

from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

from splitwiper.errors import WithdrawnError

_PIECE = 1 << 20
_KEPT = 3
"""Models that are held in memory; downloads of older ones are broken off."""


class Copy:
    """A file in memory, shared by any number of slow readers."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the file in pieces, so that no connection buffers more than one; fail once newer models replace it."""
        for start in range(0, self.size, _PIECE):
            piece = self._data[start : start + _PIECE]  # a local reference to all of the data would outlive `end`
            if not piece:
                raise WithdrawnError("newer models were published while this one was downloaded: download the newest.")
            yield piece

    def end(self) -> None:
        """Release the memory, whoever is still reading."""
        self._data = b""


class Copies:
    """The newest models that are being downloaded, by commitment; each is in memory once.

    A reader may be as slow as it likes. One that begins to download every new model, and reads on by a byte a minute,
    would otherwise keep as many of them in memory as it has connections.
    """

    def __init__(self) -> None:
        self._read: WeakValueDictionary[str, Copy] = WeakValueDictionary()
        """Copies that somebody reads, oldest first."""

    def find(self, commitment: str) -> Copy | None:
        """Return the copy of a model if somebody reads it."""
        return self._read.get(commitment)

    def add(self, commitment: str, data: bytes) -> Copy:
        """Return a new copy, and end the oldest if there are too many."""
        new = self._read[commitment] = Copy(data)
        for commitment in list(self._read)[:-_KEPT]:
            if (old := self._read.pop(commitment, None)) is not None:
                old.end()
        return new
