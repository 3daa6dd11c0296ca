"""Record a transcript: states are digested and written during training, in order, by one thread."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from contextlib import suppress

from splitwiper.errors import StoreError
from splitwiper.exclusive import own_pool
from splitwiper.seeding import state_digest
from splitwiper.store import EpochRecord, ServerStore, files
from splitwiper.store.tensors import save_state
from splitwiper.training.stepping import State

_WAITING = 2
"""Largest number of states in memory that are being written or wait for it; beyond, training waits."""


class TranscriptRecorder:
    """Writes the state after each epoch into the server's store; a `splitwiper.training.loop.OnState`.

    The files have no effect until the database points to them; on leaving the context, those it does not
    point to are erased. A full disk ends the training as it does when the model is written: nothing is published, no
    state is left, and the same call trains again once there is room.
    """

    def __init__(self, store: ServerStore) -> None:
        self._store = store
        self._writer = own_pool(1)
        self._writing = deque[Future[EpochRecord]]()
        self._written: list[EpochRecord] = []
        self._names: list[str] = []

    def __enter__(self) -> TranscriptRecorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.shutdown(wait=True, cancel_futures=True)
        self._erase()

    def __call__(self, epoch: int, state: State) -> None:
        """Queue a state for writing; epoch 0 restarts the recording. Errors of earlier writes are raised here."""
        if epoch == 0 and self._writing:  # the GPU's memory was full, and training started over
            self.records()
            self._erase()
        self._wait(_WAITING - 1)
        self._writing.append(self._writer.submit(self._write, epoch, state))

    def records(self) -> tuple[EpochRecord, ...]:
        """Wait until every state is written, and return the records for the database."""
        self._wait(0)
        return tuple(self._written)

    def _wait(self, most: int) -> None:
        """Wait until at most so many states are left to be written, in the order in which they came."""
        while len(self._writing) > most:
            self._written.append(self._writing.popleft().result())

    def _write(self, epoch: int, state: State) -> EpochRecord:
        name, staged = files.random_name("epoch"), self._store.root / "incoming" / files.owned_name("epoch")
        self._names.append(name)
        try:
            save_state(staged, state)
            self._store.blobs.put("epochs", name, staged)
        finally:
            with suppress(OSError):
                staged.unlink(missing_ok=True)
        return EpochRecord(epoch, name, state_digest(state))

    def _erase(self) -> None:
        # only what this training wrote: another process may have published states of its own meanwhile
        with suppress(OSError, StoreError):  # a file that cannot be erased now is swept before the next training
            kept = self._store.kept()["epochs"]
            for name in self._names:
                if name not in kept:
                    self._store.blobs.erase("epochs", name)
        self._names, self._written = [], []
