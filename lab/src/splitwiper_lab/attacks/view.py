"""What an honest-but-curious server has: every upload it ever received, and its own trained half.

Nothing here comes from a client's folder. Labels are what the server sees: masked codes, or plain labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from splitwiper.errors import NotFoundError
from splitwiper.splitting import Halves, ServerHalf
from splitwiper.store import ServerTree
from splitwiper.wire import Column, Label, Shard, open_shard
from splitwiper.wire.labels import in_order
from splitwiper_lab.attacks.snapshot import kept_in

Place = tuple[str, int]
"""An upload: (client, generation)."""


@dataclass(frozen=True)
class Seen:
    """One upload the server received."""

    client: str
    generation: int
    shard: Shard

    @property
    def place(self) -> Place:
        """Which upload it is."""
        return self.client, self.generation


@dataclass(frozen=True)
class ServerView:
    """Everything the server ever received.

    Attributes:
        uploads: every upload, oldest first per client.
        columns: what crosses the cut.
        outputs: how many outputs the server's half has, or labels it has seen.
        half: its trained half, ready to predict; None where there is none.
        labels: what the outputs of the half stand for.
        held: clients whose shard is still in the manifest; None for all.
    """

    uploads: tuple[Seen, ...]
    columns: tuple[Column, ...]
    outputs: int
    half: ServerHalf | None = None
    labels: tuple[Label, ...] = ()
    held: frozenset[str] | None = None

    @property
    def present(self) -> tuple[Seen, ...]:
        """The last upload of each client that is still in the manifest."""
        last = {seen.client: seen for seen in self.uploads}
        return tuple(seen for name, seen in sorted(last.items()) if self.held is None or name in self.held)

    @cached_property
    def table(self) -> tuple[Label, ...]:
        """Every label in any upload, in order."""
        return in_order(label for seen in self.uploads for label in seen.shard.labels)

    @cached_property
    def numbers(self) -> dict[Label, int]:
        """The code that each label in any upload stands for."""
        return code_numbers(self.table)

    @classmethod
    def of(cls, server_folder: Path, halves: Halves, earlier: Sequence[Path] = ()) -> ServerView:
        """Read a run's ``server/`` folder, and the snapshots taken of it before, oldest first.

        Raises:
            NotFoundError: there is no server there, or a snapshot is none.
        """
        if not (server_folder / "server.db").exists():
            raise NotFoundError(f"there is no server in {server_folder}: give the server/ folder of a run.")
        tree = ServerTree(server_folder)
        try:
            records, model = tree.shards(), tree.model()
            found = {place: path for folder in earlier for place, path in kept_in(folder).items()}
            found |= {(r.client, r.generation): tree.root / "shards" / r.file for r in records}
            columns = tree.columns()
            half = halves.server.loaded(tree.weights(model)) if model else None
        finally:
            tree.book.close()
        uploads = tuple(Seen(*place, open_shard(path)) for place, path in sorted(found.items()))
        labels = model.labels if model else ()
        outputs = len(labels) or len({label for seen in uploads for label in seen.shard.labels})
        return cls(uploads, columns, outputs, half, labels, frozenset(r.client for r in records))


def code_numbers(labels: Iterable[Label]) -> dict[Label, int]:
    """The code that a label stands for: its own number where all are masked, else its place in the table.

    >>> list(code_numbers([Label("", 7), Label("", 2)]).values()), list(code_numbers([Label("a", "x")]).values())
    ([2, 7], [0])
    """
    table = in_order(labels)
    if all(not x.task and isinstance(x.name, int) and x.name >= 0 for x in table):
        return {x: int(x.name) for x in table}
    return {x: place for place, x in enumerate(table)}
