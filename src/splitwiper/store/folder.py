"""What both parties' stores have in common: a folder with files, and a database that says which of them count.

Files are immutable and named at random. A change writes the new file; in one transaction points the database to it; and
then erases the file that it replaces. At whatever instant the process dies, the database is correct, and `sweep` erases
the files that it does not point to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from splitwiper.seeding import state_digest
from splitwiper.store import files
from splitwiper.store.database import Database
from splitwiper.store.tensors import load_state, save_state


class Store:
    """One party's folder and database."""

    FOLDERS: tuple[str, ...] = ()

    def __init__(self, root: Path, database: str, schema: str, key: Callable[[], bytes | None]) -> None:
        self.root = root
        self.database = Database(root / database, schema, key)

    def _write_first(self, config: str, key: bytes, **weights: Mapping[str, Tensor]) -> dict[str, str]:
        """Write what a store begins with, and return the digests of the first weights by name.

        A key that is already there is kept: what it sealed or signed could not be checked any more.
        """
        for name in self.FOLDERS:
            files.make_folder(self.root / name)
        files.write_bytes(self.root / "config.toml", config.encode())
        digests: dict[str, str] = {}
        for name, state in weights.items():
            save_state(self._first(name), state)
            digests[name.replace("_", "-")] = state_digest(state)
        self._write_key("key", key)
        return digests

    def _write_key(self, name: str, key: bytes) -> None:
        if not (self.root / name).exists():
            files.write_bytes(self.root / name, key.hex().encode(), replace=False)

    def _first(self, name: str) -> Path:
        return self.root / f"{name.replace('_', '-')}.safetensors"

    def initial(self) -> dict[str, Tensor]:
        """Return this party's weights at the time it joined, from which every training starts."""
        return load_state(self._first("initial"), self.database.meta("initial"))

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return the sizes, in bytes, of all files in one of the store's folders, by name."""
        return files.sizes(self.root / folder)

    def _erase(self, folder: str, name: str) -> None:
        files.erase(self.root / folder / name)

    def kept(self) -> dict[str, set[str]]:
        """Return the files that the database points to, by folder."""
        raise NotImplementedError

    def sweep(self) -> None:
        """Erase every file that the database does not point to.

        This happens inside a transaction, so that no file is swept between being moved into place and being pointed to,
        and a process that lost its lease stops here and erases none of its successor's files.
        """
        with self.database.change():
            for folder, keep in self.kept().items():
                for name in sorted(self.sizes(folder).keys() - keep):
                    self._erase(folder, name)
        files.sweep_abandoned(self.root, stem=files.TEMPORARY)
