"""Where a server's store keeps its shards, its model and the states of its training.

These files are immutable, and each has a random name that is used once. Only the database says which of them count. So
a place for them needs neither transactions nor locks: the server puts a file there, commits its name, and erases what
it replaces.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from splitwiper.extensions import make
from splitwiper.store import files

FOLDERS = ("shards", "models", "epochs")
COPIES = "copies"
"""The folder for local copies of files that are kept elsewhere."""


class BlobStore(Protocol):
    """A place for the immutable files of one server.

    It is made with ``root``, the server's folder on this machine, in which it may use the folder `COPIES`; ``owner``, a
    name that no other server has, not even a twin; and its settings. It must keep the files of different owners apart:
    what `sizes` names, and the database does not point to, is erased.

    Each file belongs to one of `FOLDERS`. What a call has done is durable when it returns. A full disk, or a place
    that cannot be reached, raises an `OSError` or a `splitwiper.errors.StoreError`; the call may then be made again.
    """

    def put(self, folder: str, name: str, file: Path) -> None:
        """Take over a finished file of this machine; it may be moved."""
        ...

    def path(self, folder: str, name: str) -> Path:
        """Return a file of this machine with the content, to be mapped into memory. It may be a copy.

        Raises:
            FileNotFoundError: the file is missing.
        """
        ...

    def erase(self, folder: str, name: str) -> None:
        """Erase a file, with every version of it and every copy on this machine. A missing file is fine."""
        ...

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return the sizes, in bytes, of all files and copies by name, those of interrupted calls included."""
        ...


class LocalFiles:
    """Keeps files in the store's own folder.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, folder: str, name: str, file: Path) -> None:
        """Move a file into place."""
        files.move(file, self._root / folder / name)

    def path(self, folder: str, name: str) -> Path:
        """Return the file itself. Whoever opens it finds out whether it is there."""
        return self._root / folder / name

    def erase(self, folder: str, name: str) -> None:
        """Erase a file."""
        files.erase(self._root / folder / name)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return all files of a folder with their sizes, unfinished ones included."""
        return files.sizes(self._root / folder)


def new_record(path: str, settings: Mapping[str, Any]) -> str:
    """Return what the database of a new server remembers about its blob store; empty for `LocalFiles`.

    Args:
        path: the import path; empty for `LocalFiles`.
        settings: the blob store's own settings.
    """
    return json.dumps({"path": path, "settings": dict(settings), "owner": secrets.token_hex(16)}) if path else ""


def is_recorded(record: str, path: str, settings: Mapping[str, Any]) -> bool:
    """Return whether a server was created with this blob store."""
    known = json.loads(record) if record else {"path": "", "settings": {}}
    return (known["path"], known["settings"]) == (path, dict(settings))


def blob_store(root: Path, record: str) -> BlobStore:
    """Return the blob store that a server was created with.

    Args:
        root: the server's folder.
        record: the text of `new_record`.

    Raises:
        ConfigError: it comes from a package that is not installed, or does not take its settings.
    """
    if not record:
        return LocalFiles(root)
    known = json.loads(record)
    made: BlobStore = make(known["path"], known["settings"], root=root, owner=known["owner"])
    return made
