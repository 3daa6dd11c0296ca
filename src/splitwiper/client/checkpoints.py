"""Checkpoints in the client's store."""

from __future__ import annotations

import json

from splitwiper.client.pretrain import Checkpoint
from splitwiper.errors import CorruptError
from splitwiper.seeding import state_digest
from splitwiper.store import ClientStore
from splitwiper.store.tensors import read_state
from splitwiper.wire import Label


class CheckpointRecorder:
    """A store that offers no checkpoints and records the digests of those saved, for comparison."""

    def __init__(self) -> None:
        self.digests: dict[int, str] = {}

    def load(self, number: int, key: str) -> Checkpoint | None:
        """Return None, so that everything is computed from scratch."""
        return None

    def save(self, number: int, key: str, checkpoint: Checkpoint) -> None:
        """Record a checkpoint's digest."""
        self.digests[number] = state_digest(checkpoint.state, _metadata(checkpoint))


class StoredCheckpoints:
    """Stores and finds the checkpoints of `pretrain` in the client's store."""

    def __init__(self, store: ClientStore) -> None:
        self._store = store

    def load(self, number: int, key: str) -> Checkpoint | None:
        """Return the checkpoint after a slice; None if there is none under this key, or its file is damaged."""
        record = self._store.checkpoints().get(number)
        if record is None or record.key != key:
            return None
        path = self._store.root / "checkpoints" / record.file
        try:
            state, metadata = read_state(path, record.digest)
        except CorruptError:
            return None  # it can be computed again
        return Checkpoint(state, tuple(map(Label.parse, json.loads(metadata["labels"]))))

    def save(self, number: int, key: str, checkpoint: Checkpoint) -> None:
        """Store a checkpoint."""
        self._store.put_checkpoint(number, key, checkpoint.state, _metadata(checkpoint))


def _metadata(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the metadata of a checkpoint's file, which its digest covers."""
    return {"labels": json.dumps([label.text for label in checkpoint.labels])}
