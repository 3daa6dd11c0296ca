"""Checkpoints in the client's tree."""

from __future__ import annotations

import json

from splitwiper.client.pretrain import Checkpoint
from splitwiper.errors import CorruptError
from splitwiper.seeding import state_digest
from splitwiper.store import ClientTree
from splitwiper.store.tensors import read_state
from splitwiper.wire import Label


class Recorder:
    """A shelf that has nothing to offer and remembers what it was given, for comparing."""

    def __init__(self) -> None:
        self.digests: dict[int, str] = {}

    def load(self, number: int, key: str) -> Checkpoint | None:
        """Nothing: everything is computed anew."""
        return None

    def save(self, number: int, key: str, checkpoint: Checkpoint) -> None:
        """Remember a checkpoint's digest."""
        self.digests[number] = state_digest(checkpoint.state, _metadata(checkpoint))


class TreeShelf:
    """Where `pretrain` keeps and finds its checkpoints."""

    def __init__(self, tree: ClientTree) -> None:
        self._tree = tree

    def load(self, number: int, key: str) -> Checkpoint | None:
        """The checkpoint after a slice; None when there is none under this key, or its file is damaged."""
        record = self._tree.checkpoints().get(number)
        if record is None or record.key != key:
            return None
        path = self._tree.root / "checkpoints" / record.file
        try:
            state, metadata = read_state(path, record.digest)
        except CorruptError:
            return None  # it can be computed again
        return Checkpoint(state, tuple(Label.parse(text) for text in json.loads(metadata["labels"])))

    def save(self, number: int, key: str, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint."""
        self._tree.put_checkpoint(number, key, checkpoint.state, _metadata(checkpoint))


def _metadata(checkpoint: Checkpoint) -> dict[str, str]:
    """What the header of a checkpoint's file says, and its digest covers."""
    return {"labels": json.dumps([label.text for label in checkpoint.labels])}
