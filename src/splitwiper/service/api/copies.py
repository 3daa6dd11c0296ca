"""Copies of the model that are being handed out."""

from __future__ import annotations

from collections.abc import AsyncIterator

_PIECE = 1 << 20


class Copy:
    """A file in memory that any number of slow readers share."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the file piece by piece, so that no connection holds more of it than a piece."""
        for start in range(0, len(self.data), _PIECE):
            yield self.data[start : start + _PIECE]
