"""End a training whose shards were replaced or erased meanwhile: its model would not be published."""

from __future__ import annotations

import time
from collections.abc import Sequence

from splitwiper.store import ServerStore, ShardRecord, manifest_digest

_EVERY = 0.5
"""Seconds between looks at the manifest."""


class ShardsChanged(Exception):
    """A shard that is trained on was replaced or erased."""


class StopIfShardsChange:
    """Stops a training once the manifest is no longer what it trains on, as a `splitwiper.training.loop.OnStep`.

    Without it, a training that takes days, on a client's enormous shard, would go on after that client was evicted, and
    nobody's request would be settled before its end.
    """

    def __init__(self, store: ServerStore, shards: Sequence[ShardRecord]) -> None:
        self._store, self._manifest, self._next = store, manifest_digest(shards), 0.0

    def __call__(self) -> None:
        """Look, unless that was done just now, and raise `ShardsChanged` if the manifest has changed."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            if manifest_digest(self._store.shards()) != self._manifest:
                raise ShardsChanged
