"""Secret keys in files: 32 bytes in hex."""

from __future__ import annotations

import stat
from pathlib import Path

from splitwiper.errors import CorruptError, IdentityError, NotFoundError
from splitwiper.reading import read_bytes


def check_private(path: Path, *, remedy: str = "replace it if somebody may have read it") -> None:
    """Refuse a file with a secret that others than its owner may read or write.

    ``remedy`` says what to do in case somebody has read it.

    Raises:
        NotFoundError: the file is missing.
        IdentityError: its permissions are too wide.
    """
    try:
        rights = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        raise NotFoundError(f"there is no key {path}: copy the whole folder, or restore it from a backup.") from None
    if rights & (stat.S_IRWXG | stat.S_IRWXO):
        raise IdentityError(
            f"the key {path} has permissions {rights:03o}, so users other than its owner can read or change it: run "
            f"'chmod 600 {path}', and {remedy}."
        )


def read_key(path: Path) -> bytes | None:
    """Return the key in a file, which others must not be able to read; None if the file is missing."""
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
