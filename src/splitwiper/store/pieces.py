"""A file's digest, taken while its bytes go by, so that they need not be read again.

`splitwiper.store.files.file_digest` is made of the digests of pieces. Those that went by whole are known; those that
did not, because a process died or a transfer went on in the middle of one, are read from the file in the end.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from splitwiper.reading import check_regular
from splitwiper.store.files import PIECE, file_digest


class Passing:
    """What is known of a file that only grows, from bytes that are, or were, at a place in it."""

    def __init__(self) -> None:
        self._known: dict[int, bytes] = {}
        self._begun = hashlib.sha256()
        self._at: int | None = None

    def feed(self, start: int, data: bytes) -> None:
        """Take bytes that lie at ``start``; not from the place before, a piece that was begun is given up."""
        view = memoryview(data)
        if start != self._at:
            self._known = {number: value for number, value in self._known.items() if (number + 1) * PIECE <= start}
            skipped = -start % PIECE
            if skipped > len(view):
                self._at = None
                return
            self._at, self._begun, view = start + skipped, hashlib.sha256(), view[skipped:]
        while view:
            part = view[: PIECE - self._at % PIECE]
            self._begun.update(part)
            self._at, view = self._at + len(part), view[len(part) :]
            if self._at % PIECE == 0:
                self._known[self._at // PIECE - 1] = self._begun.digest()
                self._begun = hashlib.sha256()

    def digest(self, path: Path) -> str:
        """The file's digest; what did not go by is read."""
        size = check_regular(path).st_size
        known = {number: value for number, value in self._known.items() if (number + 1) * PIECE <= size}
        if self._at == size and size % PIECE:
            known[size // PIECE] = self._begun.digest()
        return file_digest(path, known=known)
