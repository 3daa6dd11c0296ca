"""Copies of the model that clients are downloading."""

from __future__ import annotations

from collections.abc import AsyncIterator

_PIECE = 1 << 20


class Copy:
    """A file in memory, shared by any number of slow readers."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the file in pieces, so that no connection buffers more than one."""
        for start in range(0, len(self.data), _PIECE):
            yield self.data[start : start + _PIECE]
