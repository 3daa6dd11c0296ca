"""The configuration file of ``splitwiper learn``: the library's settings, and where each client's data is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitwiper.config import ClientConfig, Config, ServerConfig, from_dict, read_toml
from splitwiper.config.settings import table_in
from splitwiper.data.files import read_data
from splitwiper.errors import ConfigError, check_keys, nearest
from splitwiper.extensions import TABLES, extensions, how_to_get
from splitwiper.progress import Progress

SIDES = {"server": ServerConfig, "client": ClientConfig}


@dataclass(frozen=True, kw_only=True)
class ClientFiles:
    """One ``[clients.NAME]`` table. Paths are relative to the configuration file."""

    data: str = ""
    """The rows to learn from, ``.npz`` or ``.csv``."""
    test: str = ""
    """The rows to test on."""
    task: str = ""
    """What its labels belong to, where clients do not all share one task."""
    label: str = ""
    """The column of labels in ``.csv`` files; the last one unless given."""


@dataclass(frozen=True)
class Settings:
    """A configuration file, read and checked, with the data it names."""

    config: Config
    train: Mapping[str, tuple[Any, Any]]
    test: Mapping[str, tuple[Any, Any]]
    tasks: Mapping[str, str]
    """The task of every client that names one."""
    shortened: int = 0
    """Texts that were longer than the model takes."""
    forget: str | int = ""
    """The label that a known set was divided for."""
    owner: str = ""
    """The client that holds it."""


def read_settings(path: Path, *, seed: int | None, data: Path | None, progress: Progress) -> Settings:
    """Read a configuration file and the data it names.

    Args:
        path: the TOML file.
        seed: takes the place of the file's own.
        data: the folder of data sets; takes the place of the file's own.
        progress: called with progress.

    Raises:
        ConfigError: naming the file and the key and, for an unknown one, the nearest valid key.
        DataError: data that cannot be read, or divided like that.
        NotFoundError: data that is not there.
    """
    if not path.is_file():
        beside = [file.name for file in path.parent.glob("*.toml")]
        hint = nearest(path.name, beside) or " Give the path of a TOML file ('splitwiper learn --help' shows one)."
        raise ConfigError(f"there is no configuration file {path}.{hint}")
    values = read_toml(path)
    if seed is not None:
        values["seed"] = seed
    try:
        # paths in the file are relative to it, so that it can be moved with its data
        return _settings(path.parent, values, data, progress)
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem}") from problem


def _settings(folder: Path, values: Mapping[str, Any], data: Path | None, progress: Progress) -> Settings:
    own = _names(Config)
    check_keys(values, [*own, "clients", "data", "compare"])
    if bool(values.get("clients")) == ("data" in values):
        raise ConfigError(
            'say where the data is: a [clients.NAME] table with data = "NAME.npz" for each client, or one [data] '
            'table with source = "digits" or another known set; one of them, not both.'
        )
    if not table_in(values.get("model", {}), "model").get("factory"):
        raise ConfigError("model.factory is missing: name the network, as in factory = 'splitwiper.models:mlp'.")
    _check_sides(values)
    if "data" in values:
        if (reader := extensions(TABLES).get("data")) is None:
            raise ConfigError(how_to_get("the table [data], which divides a known data set over clients,"))
        # the table belongs to the laboratory, which the product does not import
        made: Settings = reader.load()(folder, values, data, progress)
        return made
    if data is not None:
        raise ConfigError("--data is for a [data] table; [clients.NAME] tables name their files themselves.")
    config = from_dict(Config, {key: value for key, value in values.items() if key in own})
    return _read_files(folder, config, table_in(values["clients"], "clients"), progress)


def _names(settings: type[Config | ServerConfig | ClientConfig]) -> list[str]:
    return [field.name for field in dataclasses.fields(settings)]


def _check_sides(values: Mapping[str, Any]) -> None:
    """Say where a key belongs that stands in the table of the other side."""
    for side, other in (("server", "client"), ("client", "server")):
        for key in table_in(values.get(side, {}), side):
            if key in _names(SIDES[other]) and key not in _names(SIDES[side]):  # most are on both sides
                raise ConfigError(f"unknown key '{side}.{key}': {key} belongs to [{other}].")


def _read_files(folder: Path, config: Config, tables: Mapping[str, Any], progress: Progress) -> Settings:
    """Read every client's own files, once all of their tables are known to be right."""
    clients = {name: _client_files(name, table) for name, table in tables.items()}
    train: dict[str, tuple[Any, Any]] = {}
    test: dict[str, tuple[Any, Any]] = {}
    tasks: dict[str, str] = {}
    for number, (name, files) in enumerate(clients.items()):
        progress("reading data", number, len(clients))
        train[name] = read_data(folder / files.data, label=files.label or None)
        if files.test:
            test[name] = read_data(folder / files.test, label=files.label or None)
        if files.task:
            tasks[name] = files.task
    return Settings(config, train, test, tasks)


def _client_files(name: str, values: Any) -> ClientFiles:
    files = from_dict(ClientFiles, table_in(values, f"clients.{name}"), where=f"clients.{name}.")
    if not files.data:
        raise ConfigError(f'clients.{name}.data is missing: name its file, as in data = "{name}.npz".')
    return files
