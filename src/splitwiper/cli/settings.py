"""The configuration file of ``splitwiper learn``: the library's settings, and where each client's data is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitwiper.config import ClientConfig, Config, ServerConfig, from_dict, read_toml
from splitwiper.data.divide import CLIENTS, client_names
from splitwiper.data.files import read_data
from splitwiper.data.sources import data_folder
from splitwiper.errors import ConfigError, nearest

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


@dataclass(frozen=True, kw_only=True)
class KnownData:
    """The ``[data]`` table: a known data set, divided over clients. Paths are relative to the configuration file."""

    source: str = ""
    """A set's name, or two joined by ``+``: ``cifar10+mnist``."""
    partition: str = "overlapping"
    """How labels lie with clients: 'homogeneous', 'overlapping', 'disjoint' or 'equal'."""
    clients: tuple[str, ...] = CLIENTS
    """Their names; the file may also give a number."""
    forget: str | int = ""
    """The label that is to be forgotten later, and that only ``owner`` holds."""
    owner: str = ""
    """The client that holds the label to forget."""
    share: bool = False
    """Let that label lie with other clients too."""
    folder: str = ""
    """Where data sets lie; else SPLITWIPER_DATA says it."""
    rows: int = 0
    """Take so many training rows only; 0 takes all."""
    tokenizer: str = ""
    """A ``tokenizer.json`` for texts; without it words are hashed."""

    def __post_init__(self) -> None:
        if not self.source:
            raise ConfigError('data.source is missing: name a data set, as in source = "cifar10".')
        if self.rows < 0:
            raise ConfigError(f"data.rows = {self.rows} is out of range: give a number of rows, or 0 for all.")


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


def read_settings(
    path: Path, *, seed: int | None, data: Path | None, told: Callable[[str, int, int], None]
) -> Settings:
    """Read a configuration file and the data it names.

    Args:
        path: the TOML file.
        seed: takes the place of the file's own.
        data: where data sets lie; takes the place of the file's own.
        told: hears of progress.

    Raises:
        ConfigError: naming the file and the key and, for an unknown one, the nearest valid key.
        DataError: data that cannot be read, or divided like that.
        NotFoundError: data that is not there.
    """
    if not path.is_file():
        beside = [p.name for p in path.parent.iterdir() if p.suffix == ".toml"] if path.parent.is_dir() else []
        hint = nearest(path.name, beside) or " Give the path of a TOML file ('splitwiper learn --help' shows one)."
        raise ConfigError(f"there is no configuration file {path}.{hint}")
    values = read_toml(path)
    try:
        return _settings(path.parent, values if seed is None else {**values, "seed": seed}, data, told)
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem}") from problem


def _settings(
    folder: Path, values: Mapping[str, Any], data: Path | None, told: Callable[[str, int, int], None]
) -> Settings:
    own = [f.name for f in dataclasses.fields(Config)]
    known = [*own, "clients", "data", "compare"]
    for key in values:
        if key not in known:
            hint = nearest(key, known) or f" Known keys: {', '.join(known)}."
            raise ConfigError(f"unknown key {key!r}.{hint}")
    clients, table = values.get("clients", {}), values.get("data")
    if bool(clients) == (table is not None):
        raise ConfigError(
            'say where the data is: a [clients.NAME] table with data = "NAME.npz" for each client, or one [data] '
            'table with source = "digits" or another known set; one of them, not both.'
        )
    if not _table(values.get("model", {}), "model").get("factory"):
        raise ConfigError("model.factory is missing: name the network, as in factory = 'splitwiper.models:mlp'.")
    _check_sides(values)
    if table is not None:
        return _known(folder, values, _known_data(_table(table, "data")), data, told)
    if data is not None:
        raise ConfigError("--data is for a [data] table; [clients.NAME] tables name their files themselves.")
    config = from_dict(Config, {key: value for key, value in values.items() if key in own})
    return _files(folder, config, {n: _client(n, f) for n, f in _table(clients, "clients").items()}, told)


def _check_sides(values: Mapping[str, Any]) -> None:
    """Say where a key belongs that stands in the table of the other side."""
    sides = {name: {f.name for f in dataclasses.fields(kind)} for name, kind in SIDES.items()}
    for here, other in (("server", "client"), ("client", "server")):
        for key in _table(values.get(here, {}), here):
            if key in sides[other] - sides[here]:
                raise ConfigError(f"unknown key '{here}.{key}': {key} belongs to [{other}].")


def _files(
    folder: Path, config: Config, clients: Mapping[str, ClientFiles], told: Callable[[str, int, int], None]
) -> Settings:
    """Every client's own files."""
    learn: dict[str, tuple[Any, Any]] = {}
    check: dict[str, tuple[Any, Any]] = {}
    for number, (name, files) in enumerate(clients.items()):
        told("reading data", number, len(clients))
        learn[name] = read_data(folder / files.data, label=files.label or None)
        if files.test:
            check[name] = read_data(folder / files.test, label=files.label or None)
    return Settings(config, learn, check, {name: files.task for name, files in clients.items() if files.task})


def _known(
    folder: Path,
    values: Mapping[str, Any],
    table: KnownData,
    data: Path | None,
    told: Callable[[str, int, int], None],
) -> Settings:
    """A known data set. What the file does not say of the network and its training comes from the set's recipe."""
    from splitwiper.workloads import MODELS, workload

    told("reading data", 0, 1)
    model = dict(_table(values["model"], "model"))
    factory = str(model.pop("factory"))
    short = factory.removeprefix("splitwiper.models:")
    work = workload(
        table.source,
        short if short in MODELS else factory,
        partition=table.partition,
        clients=table.clients,
        seed=_coerced_seed(values),
        folder=data or (folder / data_folder(table.folder) if table.folder else None),
        rows=table.rows or None,
        share=table.share,
        forget=None if table.forget == "" else table.forget,
        owner=table.owner or None,
        server=_table(values.get("server", {}), "server"),
        client=_table(values.get("client", {}), "client"),
        model_args=_table(model.pop("args", {}), "model.args"),
        cut=model,
        tokenizer=folder / table.tokenizer if table.tokenizer else None,
    )
    return Settings(
        work.config, dict(work.train), dict(work.test), work.tasks, work.shortened, forget=work.forget, owner=work.owner
    )


def _coerced_seed(values: Mapping[str, Any]) -> int:
    """The seed, checked as every other setting is."""
    return from_dict(Config, {"seed": values.get("seed", 0)}).seed


def _known_data(values: Mapping[str, Any]) -> KnownData:
    """The table; a number of clients becomes their names."""
    number = values.get("clients")
    if isinstance(number, int) and not isinstance(number, bool):
        if number < 1:
            raise ConfigError(f"data.clients = {number} is out of range: give a number of clients, or their names.")
        values = {**values, "clients": client_names(number)}
    return from_dict(KnownData, values, where="data.")


def _client(name: str, values: Any) -> ClientFiles:
    files = from_dict(ClientFiles, _table(values, f"clients.{name}"), where=f"clients.{name}.")
    if not files.data:
        raise ConfigError(f'clients.{name}.data is missing: name its file, as in data = "{name}.npz".')
    return files


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a table, not {value!r}.")
    return value
