"""What an honest-but-curious server has: every upload it ever received, and its own trained half.

Nothing here comes from a client's folder. Labels are as the server sees them: masked codes, or plain labels.

A faithful server erases superseded shards; a curious one may not. To simulate a curious server, take a `snapshot`
before each change. The files are hard links where the file system allows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from splitwiper.errors import FormatError, InputError, NotFoundError
from splitwiper.splitting import Halves, ServerHalf
from splitwiper.store import ServerStore, files
from splitwiper.training.cache import Cache
from splitwiper.wire import Column, Label, Shard, open_shard
from splitwiper.wire.columns import Array
from splitwiper.wire.labels import in_order

FORMAT = "splitwiper-snapshot"
_LIST = "snapshot.json"
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


def snapshot(run: Path, to: Path) -> int:
    """Keep the shards that a run's server holds now in a new folder, and return their number.

    Notes:
        Data in a snapshot is not forgotten when the run forgets it: use snapshots only for experiments.

    Raises:
        InputError: the folder exists.
        NotFoundError: the folder ``run`` does not hold a run.
    """
    if to.exists():
        raise InputError(f"{to} exists already; give a new folder for the snapshot.")
    if not (run / "server" / "server.db").exists():
        raise NotFoundError(f"there is no run in {run}: give the folder of one.")
    store = ServerStore(run / "server")
    try:
        records, columns = store.shards(), store.columns()
        files.make_folder(to)
        for record in records:
            files.adopt(store.root / "shards" / record.file, to / record.file)
    finally:
        store.database.close()
    known = {
        "format": FORMAT,
        "columns": [[column.name, column.dtype, list(column.shape)] for column in columns],
        "shards": [[record.client, record.generation, record.file] for record in records],
    }
    files.write_bytes(to / _LIST, json.dumps(known, indent=1).encode())  # last: it makes the snapshot valid
    return len(records)


def kept_in(folder: Path) -> dict[tuple[str, int], Path]:
    """Return the shards in a snapshot, by client and generation.

    Raises:
        NotFoundError: the folder is not a snapshot.
        FormatError: its list cannot be read.
    """
    if not (folder / _LIST).exists():
        raise NotFoundError(f"{folder} is not a snapshot (it has no {_LIST}): make one with snapshot(run, to).")
    try:
        known = json.loads((folder / _LIST).read_text(encoding="utf-8"))
        if known["format"] != FORMAT:
            raise ValueError(f"its format is {known['format']!r}")
        return {(str(client), int(generation)): folder / file for client, generation, file in known["shards"]}
    except (ValueError, TypeError, KeyError) as problem:
        raise FormatError(f"{folder / _LIST} is malformed ({problem}): take the snapshot again.") from problem
