"""What an honest-but-curious server has: every upload it ever received, and its own trained half.

Nothing here comes from a client's folder. Labels are as the server sees them: masked codes, or plain labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from splitwiper.errors import NotFoundError
from splitwiper.splitting import Halves, ServerHalf
from splitwiper.store import ServerStore
from splitwiper.training.cache import Cache
from splitwiper.wire import Column, Label, Shard, open_shard
from splitwiper.wire.columns import Array
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
        last = {seen.client: seen for seen in self.uploads}  # uploads are sorted, so later ones replace earlier ones
        return tuple(last[name] for name in sorted(last) if self.held is None or name in self.held)

    @cached_property
    def table(self) -> tuple[Label, ...]:
        """Every label in any upload, in order."""
        return _labels_of(self.uploads)

    @cached_property
    def numbers(self) -> dict[Label, int]:
        """The code of each label in any upload."""
        return code_numbers(self.table)

    def codes_of(self, seen: SeenShard) -> Array:
        """Return the code of each row of an upload."""
        # each shard counts labels in its own table; the view has one number for each label of all shards
        numbers = np.fromiter(map(self.numbers.__getitem__, seen.shard.labels), np.int64)
        return np.take(numbers, seen.shard.codes)

    def cache(self, uploads: Sequence[SeenShard]) -> Cache:
        """Return the rows of some uploads as one table, from which activations can be read."""
        shards, names = [seen.shard for seen in uploads], [column.name for column in self.columns]
        return Cache(shards, self.table, names=names, columns=self.columns)

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
            records, model, columns = store.shards(), store.model(), store.columns()
            paths: dict[Place, Path] = {}
            for folder in earlier:
                paths |= kept_in(folder)
            # what the server still has comes last: a snapshot may hold a copy of the same upload
            for record in records:
                paths[record.client, record.generation] = store.root / "shards" / record.file
            half = halves.server.loaded(store.weights(model)) if model else None
        finally:
            store.database.close()
        uploads = tuple(SeenShard(*place, open_shard(paths[place])) for place in sorted(paths))
        labels = model.labels if model else ()
        outputs = len(labels) or len(_labels_of(uploads))
        return cls(uploads, columns, outputs, half, labels, frozenset(record.client for record in records))


def _labels_of(uploads: Iterable[SeenShard]) -> tuple[Label, ...]:
    return in_order(chain.from_iterable(seen.shard.labels for seen in uploads))


def code_numbers(labels: Iterable[Label]) -> dict[Label, int]:
    """Return the code of each label: its own number if all labels are masked, else its index in the table.

    >>> list(code_numbers([Label("", 7), Label("", 2)]).values()), list(code_numbers([Label("a", "x")]).values())
    ([2, 7], [0])
    """
    table = in_order(labels)
    if all(not label.task and isinstance(label.name, int) and label.name >= 0 for label in table):
        return {label: int(label.name) for label in table}
    return dict(zip(table, range(len(table)), strict=True))
