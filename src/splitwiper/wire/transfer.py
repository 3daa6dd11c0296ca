"""Transfer coding: how a file travels. What arrives is the file that was sent, byte for byte."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import IO

from splitwiper.errors import ConfigError, CorruptError

_CHUNK = 1 << 20
LEVEL = 3


def check_transfer(coding: str) -> None:
    """Refuse a coding that cannot be used here.

    Raises:
        ConfigError: its library is not installed.
    """
    if coding == "zstd" and importlib.util.find_spec("zstandard") is None:
        raise ConfigError(
            "transfer = 'zstd' needs the package zstandard: pip install 'splitwiper[zstd]', or set transfer = 'none'."
        )


def carry(source: Path, target: IO[bytes], coding: str) -> int:
    """Send a file through the coding and write what arrives, in constant memory; returns the bytes that travelled.

    Raises:
        CorruptError: what arrived does not end where the file does.
    """
    check_transfer(coding)
    if coding == "none":
        with source.open("rb") as file:
            while chunk := file.read(_CHUNK):
                target.write(chunk)
        return source.stat().st_size
    import zstandard

    travelled, arriving = 0, zstandard.ZstdDecompressor().decompressobj()
    with source.open("rb") as file:
        leaving = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        for chunk in leaving.read_to_iter(file, size=source.stat().st_size, read_size=_CHUNK):
            travelled += len(chunk)
            target.write(arriving.decompress(chunk))
    if not arriving.eof or target.tell() != source.stat().st_size:
        raise CorruptError(f"{source} did not arrive whole: send it again.")
    return travelled
