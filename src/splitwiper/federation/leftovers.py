"""Files in a run folder that no database points to: a place where forgotten rows could survive.

The next `learn` or `settle` erases the remains of a crash. Files that something other than SplitWiper put there (an
erased shard that was restored, a copy of a client's folder) stay until a person removes them, and until then nothing is
proved to be gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import closing
from pathlib import Path

from splitwiper.errors import StoreError
from splitwiper.reading import explaining
from splitwiper.store import ClientStore, ServerStore, blobs, files

_SERVER = {"config.toml", "initial.safetensors", "client-initial.safetensors", "key", blobs.COPIES}
_CLIENT = {"config.toml", "initial.safetensors", "key", "group", "codebook"}


def leftovers(root: Path, server: ServerStore) -> list[str]:
    """Return what to do about files and folders of a run that no database points to."""
    todo = []
    for name in _strange(server.root, "server.db"):
        todo.append(f"remove server/{name}: it is not part of a run")
    for folder, kept in {**server.kept(), "incoming": set[str]()}.items():
        if server.sizes(folder).keys() - kept:
            todo.append("erase what was superseded on the server")
            break
    heard = server.clients()
    for path in _entries(root / "clients"):
        for problem in _about(path, heard.keys()):
            todo.append(f"remove clients/{path.name}{problem}")
    return todo


def _about(folder: Path, heard: Set[str]) -> Iterator[str]:
    """Yield what is wrong with an entry of the folder of clients."""
    if not folder.is_dir() or folder.name.startswith(files.TEMPORARY):
        yield ": it is not a client's folder"
        return
    for name in _strange(folder, "client.db"):
        yield f"/{name}: it is not part of a client's folder"
    if not (folder / "client.db").exists():
        if any(_entries(folder / part) for part in ClientStore.FOLDERS):
            yield ": it holds files of a client, and no records of what may be in them"
    elif folder.name not in heard and (owner := _owner(folder)) not in (None, folder.name):
        yield f": it is a copy of the folder of client {owner}"


def _owner(folder: Path) -> str | None:
    """Return the folder's owner by its own records; None if they cannot be read, which is reported elsewhere."""
    with closing(ClientStore(folder).database) as database:
        try:
            return database.meta("name")
        except StoreError:
            return None


def _strange(folder: Path, database: str) -> list[str]:
    """Return names in a party's folder that SplitWiper does not use and that may hold rows, activations or weights."""
    ours = _SERVER.union(ServerStore.FOLDERS) if database == "server.db" else _CLIENT.union(ClientStore.FOLDERS)
    ours |= {database, f"{database}-journal", f"{database}-wal", f"{database}-shm"}
    return [path.name for path in _entries(folder) if path.name not in ours and _may_hold_rows(path)]


def _may_hold_rows(path: Path) -> bool:
    """Return whether a file, or one in a folder, is of a kind that SplitWiper keeps rows in."""
    if path.name.startswith(files.TEMPORARY):
        return files.is_abandoned(path)
    if path.is_dir():
        return any(map(_may_hold_rows, _entries(path)))
    return path.suffix in (".safetensors", ".db")


def _names(folder: Path) -> set[str]:
    return {path.name for path in _entries(folder)}


def _entries(folder: Path) -> list[Path]:
    with explaining(folder):
        return sorted(folder.iterdir()) if folder.is_dir() else []
