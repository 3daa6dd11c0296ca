"""Append data from the network to a file: a thread writes and digests it while more arrives."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from splitwiper.errors import BusyError, DataError
from splitwiper.store import files
from splitwiper.store.pieces import Passing
from splitwiper.wire.transfer import Decoder

_BATCH = 1 << 21
"""Bytes per write. Up to twice as many are in memory: the batch being written, and the one being collected."""
_VECTOR = 512
"""Pieces written by one system call; systems take at least 1,024."""
_SYNC = 1 << 25
"""Bytes after which a sync to disk is started; the last sync has less than twice as many to wait for."""
_LOOK = 1 << 24
"""Bytes of the file after which free disk space is checked again."""


async def append(
    path: Path,
    pieces: AsyncIterator[bytes],
    *,
    limit: int,
    passing: Passing,
    coding: str = "",
    check_room: Callable[[], None] = lambda: None,
) -> int:
    """Append all pieces durably. Pieces that arrived before an interruption are kept.

    Args:
        path: the file.
        pieces: the data.
        limit: the file's largest size, in bytes.
        passing: is fed every byte after it is written.
        coding: 'zstd' if the pieces are compressed. They are decompressed as they are written, and never stored.
        check_room: raises if the disk has no room for more. It is called before the first bytes are written, and every
            16 MiB of the file, however few bytes were received for them.

    Returns:
        The number of bytes received.

    Raises:
        DataError: there was more data than allowed, or it cannot be decompressed.
    """
    arrived = 0
    with (
        path.open("ab", buffering=0) as file,
        _Writer(file.fileno(), path, passing, limit, coding, check_room) as writer,
    ):
        try:
            async for piece in pieces:
                arrived += len(piece)
                await writer.take(piece)
        finally:
            await writer.finish()
    return arrived


class _Writer:
    """Buffers pieces and writes them in the background, in order, on one thread."""

    def __init__(
        self, target: int, path: Path, passing: Passing, limit: int, coding: str, check_room: Callable[[], None]
    ) -> None:
        self._target, self._path, self._passing, self._limit = target, path, passing, limit
        self._check_room, self._unchecked = check_room, _LOOK
        self._decoder = Decoder(lambda piece: self._put([piece])) if coding else None
        self._gathered: list[bytes] = []
        self._size = self._unsynced = 0
        self._end = os.fstat(target).st_size
        self._broken = False
        self._writing: asyncio.Future[None] | None = None
        self._syncing: asyncio.Future[None] | None = None
        self._writer, self._syncer = (ThreadPoolExecutor(1, thread_name_prefix=name) for name in ("append", "sync"))

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for both threads before the file is closed."""
        self._writer.shutdown()
        self._syncer.shutdown()

    async def take(self, piece: bytes) -> None:
        """Buffer a piece; wait for the disk if writing is behind."""
        self._gathered.append(piece)
        self._size += len(piece)
        if self._size >= _BATCH:
            await self._write()

    async def finish(self) -> None:
        """Write the rest, and make everything durable."""
        await self._write()
        await asyncio.get_running_loop().run_in_executor(self._writer, os.fsync, self._target)  # after the last batch
        for under_way in (self._writing, self._syncing):
            if under_way is not None:
                await under_way

    async def _write(self) -> None:
        if self._writing is not None:
            await self._writing
        batch, self._gathered = self._gathered, []
        self._unsynced += self._size
        self._size = 0
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(self._writer, self._written, batch)
        if self._unsynced >= _SYNC and (self._syncing is None or self._syncing.done()):
            self._syncing = loop.run_in_executor(self._syncer, os.fdatasync, self._target)
            self._unsynced = 0

    def _written(self, batch: Sequence[bytes]) -> None:
        """Write a batch. After a failed one nothing more is written, because the file would have a hole."""
        if self._broken:
            return
        # stays true unless the batch is written to its end
        self._broken = True
        if os.fstat(self._target).st_size != self._end:  # another server has taken over the store
            raise BusyError("another process writes to this upload: look where it stands.")
        if self._decoder is None:
            self._put(batch)
        else:
            for piece in batch:
                self._decoder.feed(piece)
        self._broken = False

    def _put(self, pieces: Sequence[bytes]) -> None:
        """Write pieces to the file, and digest them.

        Raises:
            DataError: the file would be longer than announced.
        """
        if self._end + sum(map(len, pieces)) > self._limit:
            raise DataError(f"more came than the {self._limit:,} bytes that were announced.")
        self._unchecked += sum(map(len, pieces))
        if self._unchecked >= _LOOK:
            self._unchecked = 0
            self._check_room()
        with files.step("append", self._path):
            for first in range(0, len(pieces), _VECTOR):
                _write_all(self._target, pieces[first : first + _VECTOR])
        for piece in pieces:
            self._passing.feed(self._end, piece)
            self._end += len(piece)


def _write_all(target: int, pieces: Sequence[bytes]) -> None:
    """Write pieces in order, joining them only if the system call did not take them all."""
    written, left = os.writev(target, pieces), sum(map(len, pieces))
    if written < left:
        rest = memoryview(b"".join(pieces))[written:]
        while rest:
            rest = rest[os.write(target, rest) :]
