"""What an honest-but-curious server has: every upload it ever received, and its own trained half.

Nothing here comes from a client's folder. Labels are as the server sees them: masked codes, or plain labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from splitwiper.errors import NotFoundError
from splitwiper.splitting import Halves, ServerHalf
from splitwiper.store import ServerStore
from splitwiper.wire import Column, Label, Shard, open_shard
from splitwiper.wire.labels import in_order
from splitwiper_lab.attacks.snapshot import kept_in

Place = tuple[str, int]
"""An upload: (client, generation)."""


@dataclass(frozen=True)
class SeenShard:
    """One upload that the server received."""

    client: str
    generation: int
    shard: Shard

    @property
    def place(self) -> Place:
        """The upload's (client, generation)."""
        return self.client, self.generation


@dataclass(frozen=True)
class ServerView:
    """Everything the server ever received.

    Attributes:
        uploads: every upload, oldest first per client.
        columns: the columns that cross the cut.
        outputs: the number of outputs of the server's half, or of labels seen if there is no half.
        half: the trained server half, ready to predict; None if there is none.
        labels: the labels of the half's outputs.
        held: clients whose shard is still in the manifest; None for all.
    """

    uploads: tuple[SeenShard, ...]
    columns: tuple[Column, ...]
    outputs: int
    half: ServerHalf | None = None
    labels: tuple[Label, ...] = ()
    held: frozenset[str] | None = None

    @property
    def present(self) -> tuple[SeenShard, ...]:
        """The last upload of each client that is still in the manifest."""
        last = {seen.client: seen for seen in self.uploads}
        return tuple(seen for name, seen in sorted(last.items()) if self.held is None or name in self.held)

    @cached_property
    def table(self) -> tuple[Label, ...]:
        """Every label in any upload, in order."""
        return in_order(label for seen in self.uploads for label in seen.shard.labels)

    @cached_property
    def numbers(self) -> dict[Label, int]:
        """The code of each label in any upload."""
        return code_numbers(self.table)

    @classmethod
    def of(cls, server_folder: Path, halves: Halves, earlier: Sequence[Path] = ()) -> ServerView:
        """Read a run's ``server/`` folder, and earlier snapshots of it, oldest first.

        Raises:
            NotFoundError: the folder does not hold a server, or ``earlier`` has a folder that is not a snapshot.
        """
        if not (server_folder / "server.db").exists():
            raise NotFoundError(f"there is no server in {server_folder}: give the server/ folder of a run.")
        store = ServerStore(server_folder)
        try:
            records, model = store.shards(), store.model()
            found: dict[Place, Path] = {}
            for folder in earlier:
                found |= kept_in(folder)
            # what the server still has comes last: a snapshot may hold a copy of the same upload
            for record in records:
                found[record.client, record.generation] = store.root / "shards" / record.file
            columns = store.columns()
            half = halves.server.loaded(store.weights(model)) if model else None
        finally:
            store.database.close()
        uploads = tuple(SeenShard(*place, open_shard(path)) for place, path in sorted(found.items()))
        labels = model.labels if model else ()
        outputs = len(labels) or len(in_order(label for seen in uploads for label in seen.shard.labels))
        return cls(uploads, columns, outputs, half, labels, frozenset(r.client for r in records))


def code_numbers(labels: Iterable[Label]) -> dict[Label, int]:
    """Return the code of each label: its own number if all labels are masked, else its index in the table.

    >>> list(code_numbers([Label("", 7), Label("", 2)]).values()), list(code_numbers([Label("a", "x")]).values())
    ([2, 7], [0])
    """
    table = in_order(labels)
    if all(not x.task and isinstance(x.name, int) and x.name >= 0 for x in table):
        return {x: int(x.name) for x in table}
    return {x: place for place, x in enumerate(table)}
