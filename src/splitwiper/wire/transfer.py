"""Transfer coding: how a file is encoded in transit. The file that arrives equals the one sent, byte for byte.

Over a network, each sending call has a stream of its own: an interrupted upload resumes at any offset of the file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

from splitwiper.errors import CorruptError, DataError
from splitwiper.extras import check_installed, is_installed

_CHUNK = 1 << 20
_LEVEL = 3
_WINDOW = 8 << 20
"""Memory in bytes that a stream may make its reader use: enough for level 3, and for any client up to level 19."""


def check_transfer(coding: str) -> None:
    """Refuse a coding whose library is not installed."""
    if coding == "zstd":
        check_installed("zstandard", "transfer = 'zstd'", otherwise="set transfer = 'none'")


def carry(source: Path, target: IO[bytes], coding: str) -> int:
    """Send a file through the coding and write what arrives, in constant memory; return the bytes transferred."""
    check_transfer(coding)
    if coding == "none":
        with source.open("rb") as file:
            shutil.copyfileobj(file, target, _CHUNK)
        return source.stat().st_size
    import zstandard

    travelled, arriving = 0, zstandard.ZstdDecompressor().decompressobj()
    with source.open("rb") as file:
        leaving = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        for chunk in leaving.read_to_iter(file, size=source.stat().st_size, read_size=_CHUNK):
            travelled += len(chunk)
            target.write(arriving.decompress(chunk))
    if not arriving.eof or target.tell() != source.stat().st_size:
        raise CorruptError(f"{source} did not arrive whole: send it again.")
    return travelled


def codings() -> list[str]:
    """Return the codings that this installation reads and writes."""
    return ["zstd"] if is_installed("zstandard") else []


def compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Compress pieces of a file as they are consumed."""
    import zstandard

    stream = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
    for piece in pieces:
        if out := stream.compress(piece):
            yield out
    yield stream.flush()


class Decoder:
    """Decompresses a stream into a function, at most 128 KiB at a time, however well the stream is compressed."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        import zstandard

        self._problem = zstandard.ZstdError
        decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        self._stream: Any = decompressor.stream_writer(cast("IO[bytes]", SimpleNamespace(write=put)), closefd=False)

    def feed(self, piece: bytes) -> None:
        """Decompress a piece, or raise `DataError` if it is not zstd data."""
        try:
            self._stream.write(piece)
        except self._problem as problem:
            raise DataError(
                f"the data is not a zstd stream ({problem}): ask how far the upload has come, and continue there."
            ) from problem
