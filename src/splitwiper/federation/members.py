"""The clients of a federation: their folders, how they join, and their marks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from splitwiper.client import Client, check_rows
from splitwiper.client.client import Progress
from splitwiper.config import Config, config_digest, to_toml
from splitwiper.data.rows import Rows
from splitwiper.errors import DataError, NotFoundError, nearest
from splitwiper.federation.folder import drawn
from splitwiper.federation.link import InProcessLink
from splitwiper.federation.sources import NAME
from splitwiper.federation.status import differs
from splitwiper.seeding import Stream, seeded_key
from splitwiper.server import Server
from splitwiper.splitting import Halves
from splitwiper.store import ClientTree, files
from splitwiper.store.tensors import load_state


class Members:
    """Clients by name. Those that are here have a folder; the server may know others."""

    def __init__(
        self,
        path: Path,
        halves: Halves,
        config: Config,
        server: Server,
        link: InProcessLink,
        progress: Progress | None,
    ) -> None:
        self.config, self.server, self.link, self.progress = config, server, link, progress
        self._folder, self._pending, self._halves = path / "clients", path / "pending", halves

    # --- who there is --------------------------------------------------------------------------------------

    def here(self) -> list[str]:
        """Clients whose folders are here, sorted."""
        return sorted(p.name for p in self._folder.iterdir() if self.has_joined(p.name))

    def has_joined(self, name: str) -> bool:
        """Whether a client's folder is here."""
        return (self._folder / name / "client.db").exists()

    def everybody(self) -> tuple[str, ...]:
        """Every client the federation knows, those that left included."""
        return tuple(sorted({*self.server.tree.clients(), *self.here()}))

    def client(self, name: str) -> Client:
        """An existing client, for work.

        Raises:
            NotFoundError: there is none of this name.
        """
        if not NAME.fullmatch(name):
            raise NotFoundError(f"there is no client {name!r}: names have letters, digits, '.', '_' and '-' alone.")
        if not self.has_joined(name) and not self.server.tree.knows(name):
            raise NotFoundError(f"there is no client {name!r}.{nearest(name, self.everybody())}")
        tree, half = ClientTree(self._folder / name), self._halves.client_for(name)
        return Client(tree, half, self.server.columns, self.link, self.progress)

    def is_behind(self, name: str) -> bool:
        """Whether a client's own book, or the server's, tells of work it has not done."""
        tree = ClientTree(self._folder / name)
        try:
            return differs(tree, self.server.tree)
        finally:
            tree.book.close()

    # --- joining -------------------------------------------------------------------------------------------

    def check(self, name: str, rows: Rows, task: str) -> None:
        """Refuse a client's rows before any client's rows are kept.

        Raises:
            DataError: naming what does not fit.
        """
        if self.has_joined(name):
            client = self.client(name)
            if client.task != task:
                raise DataError(f"client {name!r} joined for task {client.task!r}, not {task!r}; give it another name.")
            client.check(rows)
        else:
            half, columns = self._halves.client_for(name), self.server.columns
            check_rows(rows, client=name, config=self.config.client, half=half, columns=columns)

    def join(self, name: str, task: str) -> Client:
        """An existing client, or a new one that starts from the federation's first weights."""
        tree = ClientTree(self._folder / name)
        if not self.has_joined(name):
            if self.server.tree.shard(name) is not None:
                self.client(name)  # raises: the server holds its shard, but its folder is gone
            tree.create(
                config=to_toml(self.config.client),
                initial=self._first_weights(name),
                meta={
                    "name": name,
                    "task": task,
                    "seed": str(self.config.seed),
                    "config": config_digest(self.config.client, seed=self.config.seed),
                },
                key=seeded_key(self.config.seed, name) if self.config.client.keys == "seeded" else None,
            )
        return self.client(name)

    def _first_weights(self, name: str) -> Mapping[str, Tensor]:
        """A joining client's first weights: handed over to a twin, its own half's, its own draw, or the shared ones."""
        handed = self._folder / name / "initial.safetensors"
        if handed.exists():
            return load_state(handed)
        half = self._halves.client_for(name)
        if self.config.client.init == "independent":
            return drawn(half, Stream(self.config.seed, "client-init", name))
        return half.state_dict() if name in self._halves.clients else self.server.tree.client_initial()

    # --- marks ---------------------------------------------------------------------------------------------

    def mark(self, name: str) -> None:
        """Note that a client is being worked on, before anything of it changes."""
        files.write_bytes(self._pending / name, b"")

    def unmark(self, name: str) -> None:
        """Note that nothing is left to do."""
        files.erase(self._pending / name)

    def marked(self) -> set[str]:
        """Clients that were being worked on, and may not be finished."""
        for folder in (self._pending.parent, self._pending):
            files.sweep_abandoned(folder, stem=files.TEMPORARY)
        return {p.name for p in self._pending.iterdir() if not p.name.startswith(files.TEMPORARY)}
