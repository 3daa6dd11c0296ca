"""Append data from the network to a file: a thread writes and digests it while more arrives."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from splitwiper.errors import BusyError, DataError
from splitwiper.store import files
from splitwiper.store.pieces import Passing
from splitwiper.wire.transfer import Decoder

_BATCH = 1 << 21
"""Bytes per write. Up to three times as many are in memory: the batch being written, its pieces, and the next ones."""
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
    """Append all pieces durably, and return how many bytes were received. An interruption loses none of them.

    Args:
        path: the file.
        pieces: the data.
        limit: the file's largest size, in bytes.
        passing: is fed every byte after it is written.
        coding: 'zstd' if the pieces are compressed. They are decompressed as they are written, and never stored.
        check_room: raises if the disk has no room for more. It is called before the first bytes are written, and every
            16 MiB of the file, however few bytes were received for them.

    Raises:
        DataError: there was more data than allowed, or it cannot be decompressed.
    """
    received = 0
    with (
        path.open("ab", buffering=0) as file,
        # left in reverse order: both threads end before the file is closed
        ThreadPoolExecutor(1, thread_name_prefix="sync") as syncer,
        ThreadPoolExecutor(1, thread_name_prefix="append") as writer,
    ):
        target = _Target(file.fileno(), path, passing, limit, coding, check_room)
        buffer = _Buffer(target, writer, syncer)
        try:
            async for piece in pieces:
                received += len(piece)
                await buffer.take(piece)
        finally:
            await buffer.finish()
    return received


class _Buffer:
    """Collects pieces, and has them written in the background while more arrive."""

    def __init__(self, target: _Target, writer: Executor, syncer: Executor) -> None:
        self._target, self._writer, self._syncer = target, writer, syncer
        self._batch: list[bytes] = []
        self._size = self._unsynced = 0
        self._writing: asyncio.Future[None] | None = None
        self._syncing: asyncio.Future[None] | None = None

    async def take(self, piece: bytes) -> None:
        """Buffer a piece; wait for the disk if writing is behind."""
        self._batch.append(piece)
        self._size += len(piece)
        if self._size >= _BATCH:
            await self._write()

    async def finish(self) -> None:
        """Write the rest, and make everything durable."""
        await self._write()
        # on the writer's own thread, so that it comes after the last batch
        await asyncio.get_running_loop().run_in_executor(self._writer, os.fsync, self._target.descriptor)
        for under_way in (self._writing, self._syncing):
            if under_way is not None:
                await under_way

    async def _write(self) -> None:
        if self._writing is not None:
            await self._writing
        batch, self._batch = self._batch, []
        self._unsynced += self._size
        self._size = 0
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(self._writer, self._target.write, batch)
        # started early, and beside the writing: at the end little is left to wait for
        if self._unsynced >= _SYNC and (self._syncing is None or self._syncing.done()):
            self._syncing = loop.run_in_executor(self._syncer, os.fdatasync, self._target.descriptor)
            self._unsynced = 0


class _Target:
    """The file: decompresses, writes and digests batches, on one thread."""

    def __init__(
        self, descriptor: int, path: Path, passing: Passing, limit: int, coding: str, check_room: Callable[[], None]
    ) -> None:
        self.descriptor, self._path, self._passing, self._limit = descriptor, path, passing, limit
        self._check_room, self._unchecked = check_room, _LOOK
        self._decoder = Decoder(self._put) if coding else None
        self._end = os.fstat(descriptor).st_size
        self._broken = False

    def write(self, batch: Sequence[bytes]) -> None:
        """Write a batch. After a failed one nothing more is written, because the file would have a hole."""
        if self._broken:
            return
        # stays true unless the batch is written to its end
        self._broken = True
        if os.fstat(self.descriptor).st_size != self._end:  # another server has taken over the store
            raise BusyError("another process writes to this upload: wait for it, then ask how far the upload has come.")
        data = b"".join(batch)
        if self._decoder is None:
            self._put(data)
        else:
            self._decoder.feed(data)
        self._broken = False

    def _put(self, data: bytes) -> None:
        """Write data to the file, and digest it; refuse more than was announced."""
        if self._end + len(data) > self._limit:
            raise DataError(f"more came than the {self._limit:,} bytes that were announced.")
        # counted here, after decompression: a few received bytes may become many on the disk
        self._unchecked += len(data)
        if self._unchecked >= _LOOK:
            self._unchecked = 0
            self._check_room()
        with files.step("append", self._path):
            rest = memoryview(data)
            while rest:  # the system may take less than it is given
                rest = rest[os.write(self.descriptor, rest) :]
        self._passing.feed(self._end, data)
        self._end += len(data)
