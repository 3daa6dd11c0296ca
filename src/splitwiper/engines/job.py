"""A training that another process computes: its inputs, its progress and its result, as files in one folder.

The folder is as secret as the shards: only the server's own processes may read it or write to it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from splitwiper.config import Config, ModelConfig, ServerConfig, from_dict, to_toml
from splitwiper.errors import BusyError, ConfigError, ResourceError, TrainingError, UntrainableError
from splitwiper.federation.build import build_halves
from splitwiper.server.training import TrainingInputs, Warm
from splitwiper.splitting import identity
from splitwiper.store import files
from splitwiper.store.records import columns_in, labels_in, texts
from splitwiper.store.tensors import as_bytes, load_state, save_state
from splitwiper.wire import open_shard

HERE = "SPLITWIPER_RANKS_HERE"
"""The variable that says that all processes of a training are on this machine."""
_LAST_WORDS = (r"failed \(exitcode: -\d+\)", r"^(?:\[rank\d+\]: )?[\w.]*Error: ", r"^.*\w.*\Z")
"""What says best why processes ended: a signal, or the first of their errors, or else the last line."""


@dataclass(frozen=True)
class Given:
    """What a job asks for: inputs, a model to continue from, the numerics, and whether states are wanted."""

    inputs: TrainingInputs
    warm: Warm | None
    fingerprint: Mapping[str, str]
    states: bool


def error_of(kind: str, message: str) -> Exception:
    """Return the error that another process reported by its kind and message."""
    known: dict[str, type[Exception]] = {"UntrainableError": UntrainableError, "ConfigError": ConfigError}
    known |= {"TrainingError": TrainingError, "ResourceError": ResourceError, "OutOfMemoryError": ResourceError}
    return known.get(kind, RuntimeError)(message)


@dataclass(frozen=True)
class Job:
    """The folder of one training."""

    folder: Path

    # --- inputs --------------------------------------------------------------------------------------------

    def write(self, inputs: TrainingInputs, warm: Warm | None, *, fingerprint: dict[str, str], states: bool) -> None:
        """Write what the training is a function of: the network by its import path, shards by their paths.

        Args:
            inputs: the inputs.
            warm: a model to continue from.
            fingerprint: the numerics that every process must have.
            states: whether to report the state after every epoch.

        Raises:
            ConfigError: the settings do not name the network.
        """
        if not inputs.model.factory:
            raise ConfigError(
                "other processes cannot make this network: name it in the settings (model.factory, inputs and at), or "
                "train with engine = 'local'."
            )
        plain = {
            "seed": inputs.seed,
            "manifest": inputs.manifest,
            "config": to_toml(inputs.config),
            "model": to_toml(inputs.model),
            "shards": [str(shard.path) for shard in inputs.shards],
            "labels": texts(inputs.labels),
            "columns": [[column.name, column.dtype, list(column.shape)] for column in inputs.columns],
            "fingerprint": fingerprint | {"network": identity(inputs.template)},
            "warm": texts(warm[1]) if warm else None,
            "states": states,
        }
        save_state(self.folder / "initial", inputs.initial)
        if warm:
            save_state(self.folder / "warm", warm[0])
        files.write_bytes(self.folder / "inputs", json.dumps(plain).encode())

    def read(self) -> Given:
        """Return what `write` wrote, with the network made and the shards opened.

        Raises:
            ConfigError: the network cannot be made here.
        """
        plain = json.loads((self.folder / "inputs").read_bytes())
        config = from_dict(ServerConfig, tomllib.loads(plain["config"]))
        model = from_dict(ModelConfig, tomllib.loads(plain["model"]))
        inputs = TrainingInputs(
            template=build_halves(Config(seed=plain["seed"], server=config, model=model)).server,
            initial=load_state(self.folder / "initial"),
            shards=[open_shard(Path(path)) for path in plain["shards"]],
            labels=labels_in(plain["labels"]),
            columns=columns_in(plain["columns"]),
            config=config,
            seed=plain["seed"],
            manifest=plain["manifest"],
            model=model,
        )
        warm = None if plain["warm"] is None else (load_state(self.folder / "warm"), labels_in(plain["warm"]))
        return Given(inputs, warm, plain["fingerprint"], plain["states"])

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
            if path.name not in ("inputs", "initial", "warm"):
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
