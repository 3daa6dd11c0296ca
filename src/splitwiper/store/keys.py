"""Secret keys in files: 32 bytes in hex."""

from __future__ import annotations

from pathlib import Path

from splitwiper.errors import CorruptError
from splitwiper.reading import read_bytes


def read_key(path: Path) -> bytes | None:
    """Return the key in a file; None where there is no file.

    Raises:
        CorruptError: the file holds something else, or is no regular file.
    """
    try:
        key = bytes.fromhex(read_bytes(path).decode("ascii"))
    except FileNotFoundError:
        return None
    except ValueError:
        key = b""
    if len(key) != 32:
        raise CorruptError(f"{path} is not a key: restore it from a backup.")
    return key
