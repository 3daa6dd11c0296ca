"""A file's digest, computed while its bytes pass, so that they need not be read again.

`splitwiper.store.files.file_digest` combines the digests of pieces. Pieces that passed whole are known; pieces that did
not, because a process died or a transfer resumed inside one, are read from the file at the end.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from splitwiper.reading import check_regular
from splitwiper.store.files import PIECE, file_digest


class Passing:
    """Digests of the pieces of a growing file, computed from bytes as they are written to it."""

    def __init__(self) -> None:
        self._known: dict[int, bytes] = {}
        self._begun = hashlib.sha256()
        self._at: int | None = None

    def feed(self, start: int, data: bytes) -> None:
        """Hash the bytes at offset ``start``. If they do not continue the previous call, discard the partial piece."""
        # `_at` is the offset up to which bytes were hashed without a gap since the last boundary between pieces, and
        # `_begun` the hash since that boundary; None if hashing can only resume at the next boundary.
        view = memoryview(data)
        if start != self._at:
            # pieces that reach beyond `start` may be rewritten: forget them, and resume hashing at a piece's boundary
            self._known = self._ending_by(start)
            skipped = -start % PIECE
            if skipped > len(view):
                self._at = None
                return
            self._at, self._begun, view = start + skipped, hashlib.sha256(), view[skipped:]
        while view:
            part = view[: PIECE - self._at % PIECE]
            self._begun.update(part)  # never across a boundary: `part` ends at the next one at the latest
            self._at, view = self._at + len(part), view[len(part) :]
            if self._at % PIECE == 0:
                self._known[self._at // PIECE - 1] = self._begun.digest()
                self._begun = hashlib.sha256()

    def digest(self, path: Path) -> str:
        """Return the file's digest; pieces that did not pass whole are read."""
        size = check_regular(path).st_size
        known = self._ending_by(size)
        if self._at == size and size % PIECE:  # the last piece, which is shorter, passed to its end
            known[size // PIECE] = self._begun.digest()
        return file_digest(path, known=known)

    def _ending_by(self, offset: int) -> dict[int, bytes]:
        """Return the known digests of pieces that end at an offset or before."""
        return {number: value for number, value in self._known.items() if (number + 1) * PIECE <= offset}
