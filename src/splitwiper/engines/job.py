"""A training that another process computes: its inputs, its progress and its result, as files in one folder.

The folder is as secret as the shards: only the server's own processes may read it or write to it.
"""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from splitwiper.errors import BusyError, ConfigError
from splitwiper.server.training import TrainingInputs, Warm
from splitwiper.store import files
from splitwiper.store.tensors import as_bytes, load_state
from splitwiper.wire import open_shard

HERE = "SPLITWIPER_RANKS_HERE"
"""The variable that says that all processes of a training are on this machine."""
_LAST_WORDS = (r"failed \(exitcode: -\d+\)", r"^(?:\[rank\d+\]: )?[\w.]*Error: ", r"^.*\w.*\Z")
"""What says best why processes ended: a signal, or the first of their errors, or else the last line."""


@dataclass(frozen=True)
class Job:
    """The folder of one training."""

    folder: Path

    # --- inputs --------------------------------------------------------------------------------------------

    def write(self, inputs: TrainingInputs, warm: Warm | None, *, fingerprint: dict[str, str], states: bool) -> None:
        """Write what the training is a function of; shards by their paths.

        Args:
            inputs: the inputs.
            warm: a model to continue from.
            fingerprint: the numerics that every process must have.
            states: whether to report the state after every epoch.

        Raises:
            ConfigError: the network cannot be sent to another process.
        """
        plain = replace(inputs, shards=()), [shard.path for shard in inputs.shards], warm, fingerprint, states
        pickled = io.BytesIO()
        try:
            torch.save(plain, pickled)
            if b"c__main__\n" in pickled.getvalue():  # so a pickle names what the program itself defines
                raise pickle.PicklingError("other processes cannot import what the program itself defines")
        except Exception as problem:  # whatever pickling the user's modules raises
            raise ConfigError(
                f"the network cannot be sent to another process ({problem}): define its classes in a module that can "
                "be imported, or use engine = 'local'."
            ) from problem
        with files.atomic_file(self.folder / "inputs") as file:
            file.write(pickled.getvalue())

    def read(self) -> tuple[TrainingInputs, Warm | None, dict[str, str], bool]:
        """Return what `write` wrote, with the shards opened."""
        # the file is this server's own, and contains the network itself, which is code
        inputs, shards, warm, fingerprint, states = torch.load(self.folder / "inputs", weights_only=False)
        return replace(inputs, shards=[open_shard(path) for path in shards]), warm, fingerprint, states

    # --- progress ------------------------------------------------------------------------------------------

    def report(self, **event: Any) -> None:
        """Append to the list of events."""
        with (self.folder / "events").open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def events(self, known: int) -> Iterator[dict[str, Any]]:
        """Yield the events after the first ``known`` ones."""
        path = self.folder / "events"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = text.split("\n")[:-1]  # what follows the last line break is still being written
        yield from map(json.loads, lines[known:])

    def last_words(self) -> str:
        """Return the line of what the processes printed that says best why they ended."""
        text = (self.folder / "output").read_text(encoding="utf-8", errors="replace").strip()
        for pattern in _LAST_WORDS:
            if found := re.search(rf"{pattern}.*", text, re.MULTILINE):
                return found[0][:200]
        return ""

    def put_state(self, name: str, state: dict[str, Tensor]) -> None:
        """Write a state; it is complete once an event says that it is there.

        Raises:
            FileNotFoundError: the folder was erased; it must not come into being again, with what nobody would erase.
        """
        with (self.folder / name).open("xb") as file:
            file.write(as_bytes(state))

    def take_state(self, name: str) -> dict[str, Tensor]:
        """Read a state, and erase it."""
        state = load_state(self.folder / name)
        files.erase(self.folder / name)
        return state

    def restart(self) -> None:
        """Erase everything but the inputs."""
        for path in self.folder.iterdir():
            if path.name != "inputs":
                files.erase(path)

    def is_wanted(self) -> bool:
        """Return whether the process that wants the result is still there: it has the folder locked."""
        if not self.folder.is_dir():
            return False
        try:
            with files.locked(self.folder, busy="wanted"):
                return False
        except BusyError:
            return True
