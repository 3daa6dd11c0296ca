"""The server's store: made from a configuration file on the first start, checked against it later, and restored."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from splitwiper.config import (
    Config,
    ModelConfig,
    ServerConfig,
    StoreConfig,
    codec_record,
    from_dict,
    read_toml,
    to_toml,
)
from splitwiper.errors import ConfigError, CorruptError, InputError, NotFoundError
from splitwiper.federation.build import build_halves
from splitwiper.federation.folder import remembered, without_output_layer
from splitwiper.service.certificate.restoring import Restored, record
from splitwiper.service.identity.folders import write_changed
from splitwiper.service.records.database import service_database
from splitwiper.service.records.witnesses import Witnesses
from splitwiper.service.settings import ServiceConfig
from splitwiper.splitting import Halves
from splitwiper.store import ServerStore, files
from splitwiper.store.blobs import is_recorded, new_record

MODEL = "model.toml"
"""The model's settings, kept in the store so that anybody who has the store can recompute."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The settings that a store's halves are built from; nothing of clients' settings is among them."""

    seed: int = 0
    model: ModelConfig = field(default_factory=ModelConfig)


@dataclass(frozen=True, kw_only=True)
class ServerFile(Architecture):
    """The keys and tables of a server's configuration file. Clients' settings are in their own files."""

    server: ServerConfig = field(default_factory=ServerConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    service: ServiceConfig = field(default_factory=ServiceConfig)


@dataclass(frozen=True)
class ServerSettings:
    """The settings in a server's configuration file."""

    config: Config
    service: ServiceConfig
    folder: Path
    """The folder that relative paths start from."""

    def certs(self) -> Path:
        """Return the server's folder of certificates or tokens."""
        return self.folder / self.service.certs


def read_server(path: Path) -> ServerSettings:
    """Read a server's configuration file: ``seed``, ``[model]``, ``[server]``, ``[store]``, ``[service]``.

    Between organisations, training keeps a transcript unless the file says ``transcript = false``.

    Raises:
        ConfigError: the message names the file and the key.
    """
    try:
        values = read_toml(path)
        if isinstance(training := values.setdefault("server", {}), dict):
            # without it, auditors could only recompute the whole training
            training.setdefault("transcript", True)
        file = from_dict(ServerFile, values)
        config = Config(seed=file.seed, model=file.model, server=file.server, store=file.store)
        return ServerSettings(config, file.service, path.parent)
    except FileNotFoundError as problem:
        raise ConfigError(f"there is no configuration file {path}.") from problem
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem}") from problem


def open_store(root: Path, settings: ServerSettings) -> Halves:
    """Return the store's halves; the store is created if it does not exist.

    Raises:
        InputError: the store was made with other settings.
    """
    halves = build_halves(settings.config)
    meta = remembered(halves, settings.config, codec=codec_record(settings.service))
    server_store = ServerStore(root)
    if not (root / "server.db").exists():
        _refuse_used(root)
        # no output layer: each model gets a new one, with an output for each label present
        server_store.create(
            config=to_toml(settings.config.server),
            initial=without_output_layer(halves.server, halves.server.state_dict()),
            client_initial=halves.client.state_dict(),
            meta=meta,
            blobs=new_record(*settings.config.store.place),
        )
    del meta["run"]  # random for every store
    different = [name for name, value in meta.items() if server_store.database.meta(name) != value]
    if not is_recorded(server_store.database.meta("blobs") or "", *settings.config.store.place):
        different.append("store.blobs")
    server_store.database.close()
    write_changed(root / MODEL, to_toml(Architecture(seed=settings.config.seed, model=settings.config.model)).encode())
    if different:
        raise InputError(
            f"{root} was made with other settings ({', '.join(different)}): bring them back, or give another folder."
        )
    return halves


def _refuse_used(root: Path) -> None:
    """Refuse to create a store over the remains of another, whose database is missing."""
    for name in ("shards", "models", "epochs", "certificates"):
        if files.listed(root / name):
            raise CorruptError(
                f"{root / 'server.db'} is missing, and {root / name} holds files of a store: restore a backup of the "
                "whole folder. A new store takes an empty one."
            )


def restore(root: Path, reason: str) -> Restored:
    """Record that a store is a backup, before the server is started, so that sites that know a longer ledger accept it.

    Raises:
        NotFoundError: there is no store.
        BusyError: a server is running on it.
    """
    if not (root / "server.db").exists():
        raise NotFoundError(f"there is no server's store in {root}: put the backup there first.")
    server_store = ServerStore(root)
    with closing(server_store.database), closing(service_database(root)) as database, ExitStack() as held:
        if database.path.exists():
            held.enter_context(database.lease("restoring"))
        # both leases: neither a server nor a worker may write while the entry is made
        held.enter_context(server_store.database.lease("restoring"))
        restored = record(server_store, reason)
        if database.path.exists():
            # sites countersigned them, but they are no longer heads of this ledger
            Witnesses(database).forget_after(restored.size)
    return restored
