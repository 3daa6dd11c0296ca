"""Secret keys in files: 32 bytes in hex."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from splitwiper.errors import CorruptError, IdentityError, NotFoundError
from splitwiper.reading import read_bytes


def check_private(path: Path, *, remedy: str = "replace it if somebody may have read it") -> None:
    """Refuse a file with a secret that others than its owner may read or write.

    Args:
        path: the file.
        remedy: what to do in case somebody has read it.

    Raises:
        NotFoundError: the file is missing.
        IdentityError: its permissions are too wide.
    """
    try:
        rights = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        raise NotFoundError(f"there is no key {path}: copy the whole folder, or restore it from a backup.") from None
    if os.name == "posix" and rights & (stat.S_IRWXG | stat.S_IRWXO):
        raise IdentityError(
            f"the key {path} has the rights {rights:03o}, so others than its owner may use it: run 'chmod 600 {path}', "
            f"and {remedy}."
        )


def read_key(path: Path) -> bytes | None:
    """Return the key in a file; None if the file is missing.

    Raises:
        CorruptError: the file does not hold a key, or is not a regular file.
        IdentityError: others may read it.
    """
    try:
        raw = read_bytes(path)
        check_private(path)
        key = bytes.fromhex(raw.decode("ascii"))
    except FileNotFoundError:
        return None
    except ValueError:
        key = b""
    if len(key) != 32:
        raise CorruptError(f"{path} is not a key: restore it from a backup.")
    return key
