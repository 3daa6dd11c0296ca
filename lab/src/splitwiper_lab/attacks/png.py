"""Write a contact sheet of pictures as a PNG, using only the standard library."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

from splitwiper.store import files
from splitwiper.wire.columns import Array


def png(picture: Array) -> bytes:
    """Encode a picture (height × width, or height × width × 3, of bytes) as a PNG file.

    >>> png(np.zeros((2, 3), np.uint8))[1:4]
    b'PNG'
    """
    colour = 2 if picture.ndim == 3 else 0
    height, width = picture.shape[:2]
    lines = np.ascontiguousarray(picture, np.uint8).reshape(height, -1)
    # each line starts with the number of its filter: 0 for none
    data = np.pad(lines, ((0, 0), (1, 0))).tobytes()

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b"")


def contact_sheet(path: Path, originals: Array, reconstructions: Array, *, columns: int = 8, scale: int = 3) -> None:
    """Write pictures (rows × channels × height × width, from 0 to 1) in pairs of lines, originals first.

    Args:
        path: the PNG file to write.
        originals: the original pictures.
        reconstructions: the reconstructed pictures.
        columns: pictures per line.
        scale: pixels of the sheet per pixel of a picture.
    """
    lines = []
    for start in range(0, len(originals), columns):
        for pictures in (originals, reconstructions):
            lines.append(_line(pictures[start : start + columns], columns, scale))
    sheet = np.concatenate(lines, axis=0)
    files.write_bytes(path, png(sheet[:, :, 0] if sheet.shape[2] == 1 else sheet))


def _line(pictures: Array, columns: int, scale: int) -> Array:
    channels = 3 if pictures.shape[1] >= 3 else 1
    shown = np.ones((columns, channels, pictures.shape[2] + 1, pictures.shape[3] + 1))  # a white border
    shown[: len(pictures), :, :-1, :-1] = pictures[:, :channels].clip(0, 1)
    large = (255 * shown).round().astype(np.uint8).repeat(scale, axis=2).repeat(scale, axis=3)
    return np.concatenate(list(large.transpose(0, 2, 3, 1)), axis=1)
