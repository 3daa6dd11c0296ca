"""The table ``[data]`` of a configuration file: a known data set, divided over clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitwiper.cli.settings import Settings
from splitwiper.config import Config, from_dict
from splitwiper.config.settings import table_in
from splitwiper.errors import ConfigError
from splitwiper_lab.datasets.divide import CLIENTS, client_names
from splitwiper_lab.datasets.sources import data_folder
from splitwiper_lab.workloads import known_name, workload


@dataclass(frozen=True, kw_only=True)
class KnownData:
    """The ``[data]`` table: a known data set, divided over clients. Paths are relative to the configuration file."""

    source: str = ""
    """A set's name, or two joined by ``+``: ``cifar10+mnist``."""
    partition: str = "overlapping"
    """How labels are divided over clients: 'homogeneous', 'overlapping', 'disjoint' or 'equal'."""
    clients: tuple[str, ...] = CLIENTS
    """Their names; the file may also give a number."""
    forget: str | int = ""
    """The label that is to be forgotten later, and that only ``owner`` holds."""
    owner: str = ""
    """The client that holds the label to forget."""
    share: bool = False
    """Let other clients hold that label too."""
    folder: str = ""
    """Where data sets lie; else SPLITWIPER_DATA says it."""
    rows: int = 0
    """Take so many training rows only; 0 takes all."""
    tokenizer: str = ""
    """A ``tokenizer.json`` for texts; without it, each word is hashed."""

    def __post_init__(self) -> None:
        if not self.source:
            raise ConfigError('data.source is missing: name a data set, as in source = "cifar10".')
        if self.rows < 0:
            raise ConfigError(f"data.rows = {self.rows} is out of range: give a number of rows, or 0 for all.")


def read(folder: Path, values: Mapping[str, Any], data: Path | None, told: Callable[[str, int, int], None]) -> Settings:
    """Read a known data set. Network and training settings that the file omits come from the set's recipe."""
    table = _known_data(table_in(values["data"], "data"))
    told("reading data", 0, 1)
    model = dict(table_in(values["model"], "model"))
    factory = str(model.pop("factory"))  # what is left says where to cut
    work = workload(
        table.source,
        known_name(factory),
        partition=table.partition,
        clients=table.clients,
        seed=_coerced_seed(values),
        # an option of the command comes before the file
        folder=data or (folder / data_folder(table.folder) if table.folder else None),
        rows=table.rows or None,
        share=table.share,
        forget=None if table.forget == "" else table.forget,
        owner=table.owner or None,
        server=table_in(values.get("server", {}), "server"),
        client=table_in(values.get("client", {}), "client"),
        model_args=table_in(model.pop("args", {}), "model.args"),
        cut=model,
        tokenizer=folder / table.tokenizer if table.tokenizer else None,
    )
    return Settings(
        work.config, dict(work.train), dict(work.test), work.tasks, work.shortened, forget=work.forget, owner=work.owner
    )


def _coerced_seed(values: Mapping[str, Any]) -> int:
    """Return the seed, validated like every other setting."""
    return from_dict(Config, {"seed": values.get("seed", 0)}).seed


def _known_data(values: Mapping[str, Any]) -> KnownData:
    """Parse the table, converting a number of clients into names."""
    number = values.get("clients")
    if isinstance(number, int) and not isinstance(number, bool):
        if number < 1:
            raise ConfigError(f"data.clients = {number} is out of range: give a number of clients, or their names.")
        values = {**values, "clients": client_names(number)}  # the setting itself is always names
    return from_dict(KnownData, values, where="data.")
