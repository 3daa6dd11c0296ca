"""The configuration file of ``splitwiper learn``: the library's settings, and where each client's data is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splitwiper.config import Config, from_dict, read_toml
from splitwiper.data.files import read_data
from splitwiper.data.rows import Data
from splitwiper.errors import ConfigError, nearest

SOURCES = ("digits",)


@dataclass(frozen=True, kw_only=True)
class ClientFiles:
    """One ``[clients.NAME]`` table. Paths are relative to the configuration file."""

    data: str = ""
    test: str = ""
    task: str = ""
    label: str = ""
    """The column of labels in ``.csv`` files; the last one unless given."""


@dataclass(frozen=True, kw_only=True)
class Bundled:
    """The ``[data]`` table: a data set that comes with the package, divided over clients."""

    source: str = ""
    clients: tuple[str, ...] = ("north", "south", "east", "west", "centre")
    exclusive: str = "three"
    owner: str = "north"

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ConfigError(f"data.source = {self.source!r} is not one of {', '.join(SOURCES)}.")


@dataclass(frozen=True)
class Settings:
    """A configuration file, read and checked."""

    folder: Path
    config: Config
    clients: Mapping[str, ClientFiles] = field(default_factory=dict)
    bundled: Bundled | None = None

    @property
    def tasks(self) -> dict[str, str]:
        """The task of every client that names one."""
        return {name: files.task for name, files in self.clients.items() if files.task}

    def read(self, told: Callable[[str, int, int], None]) -> tuple[dict[str, Data], dict[str, Data]]:
        """All training and test data by client; ``told`` hears of progress."""
        if self.bundled is not None:
            from splitwiper.data.bundled import digits

            own = self.bundled
            train, test = digits(clients=own.clients, exclusive=own.exclusive, owner=own.owner, seed=self.config.seed)
            return dict(train), dict(test)
        learn: dict[str, Data] = {}
        check: dict[str, Data] = {}
        for number, (name, files) in enumerate(self.clients.items()):
            told("reading data", number, len(self.clients))
            learn[name] = read_data(self.folder / files.data, label=files.label or None)
            if files.test:
                check[name] = read_data(self.folder / files.test, label=files.label or None)
        return learn, check


def read_settings(path: Path, *, seed: int | None) -> Settings:
    """Read a configuration file.

    Args:
        path: the TOML file.
        seed: takes the place of the file's own.

    Raises:
        ConfigError: naming the file and the key and, for an unknown one, the nearest valid key.
    """
    if not path.is_file():
        beside = [p.name for p in path.parent.iterdir() if p.suffix == ".toml"] if path.parent.is_dir() else []
        hint = nearest(path.name, beside) or " Give the path of a TOML file ('splitwiper learn --help' shows one)."
        raise ConfigError(f"there is no configuration file {path}.{hint}")
    values = read_toml(path)
    try:
        return _settings(path, values if seed is None else {**values, "seed": seed})
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem}") from problem


def _settings(path: Path, values: Mapping[str, Any]) -> Settings:
    own = [f.name for f in dataclasses.fields(Config)]
    known = [*own, "clients", "data"]
    for key in values:
        if key not in known:
            hint = nearest(key, known) or f" Known keys: {', '.join(known)}."
            raise ConfigError(f"unknown key {key!r}.{hint}")
    config = from_dict(Config, {key: value for key, value in values.items() if key in own})
    if not config.model.factory:
        raise ConfigError("model.factory is missing: name the network, as in factory = 'splitwiper.models:mlp'.")
    clients, data = values.get("clients", {}), values.get("data")
    if bool(clients) == (data is not None):
        raise ConfigError(
            'say where the data is: a [clients.NAME] table with data = "NAME.npz" for each client, or one [data] '
            'table with source = "digits"; one of them, not both.'
        )
    if data is not None:
        return Settings(path.parent, config, bundled=from_dict(Bundled, _table(data, "data"), where="data."))
    return Settings(
        path.parent,
        config,
        {name: _client(name, files) for name, files in _table(clients, "clients").items()},
    )


def _client(name: str, values: Any) -> ClientFiles:
    files = from_dict(ClientFiles, _table(values, f"clients.{name}"), where=f"clients.{name}.")
    if not files.data:
        raise ConfigError(f'clients.{name}.data is missing: name its file, as in data = "{name}.npz".')
    return files


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a table, not {value!r}.")
    return value
