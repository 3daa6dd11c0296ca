"""Content codings of uploads: how a shard's bytes are compressed on their way. What arrives is the file, byte for byte.

Each call that sends has a stream of its own, so an interrupted upload resumes at any offset of the file.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from splitwiper.errors import DataError
from splitwiper.wire.transfer import LEVEL

_WINDOW = 8 << 20
"""Bytes of memory that a stream may have its reader keep: what level 3, and any client up to level 19, needs."""


def codings() -> list[str]:
    """Return the codings that this installation reads and writes."""
    return ["zstd"] if importlib.util.find_spec("zstandard") else []


def compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Compress pieces of a file as they are taken."""
    import zstandard

    stream = zstandard.ZstdCompressor(level=LEVEL).compressobj()
    for piece in pieces:
        if out := stream.compress(piece):
            yield out
    yield stream.flush()


class _Sink(Protocol):
    def write(self, data: bytes, /) -> int: ...


class Decoder:
    """Decompresses a stream into a function that is given at most 128 KiB at a time, however small the stream is.

    Args:
        put: takes what comes out; it may refuse more by raising an error.
    """

    def __init__(self, put: Callable[[bytes], None]) -> None:
        import zstandard

        class Target:
            def write(self, data: bytes, /) -> int:
                put(bytes(data))
                return len(data)

        sink: _Sink = Target()
        self._problem = zstandard.ZstdError
        self._stream = zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_writer(sink, closefd=False)  # type: ignore[arg-type]

    def feed(self, piece: bytes) -> None:
        """Decompress a piece.

        Raises:
            DataError: it is not compressed so.
        """
        try:
            self._stream.write(piece)
        except self._problem as problem:
            raise DataError(
                f"what was sent is not a zstd stream ({problem}): look where the upload stands, and go on from there."
            ) from problem
