"""Settings: frozen dataclasses, validated on construction, read from and written to TOML.

`ServerConfig` and `ClientConfig` are separate types, kept in separate stores: settings that the server must not know
are in nothing it can read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splitwiper.config.hiding import Masking, Noise
from splitwiper.config.settings import (
    ADDED_LATER,
    bounded,
    check_parts,
    config_digest,
    from_dict,
    origins,
    part,
    part_args,
    part_path,
    plain,
    read_toml,
    to_toml,
    typed,
)
from splitwiper.config.training import CODECS, ClientConfig, Recipe, ServerConfig, codec_record
from splitwiper.errors import ConfigError

__all__ = [
    "CODECS",
    "ClientConfig",
    "Config",
    "Masking",
    "ModelConfig",
    "Noise",
    "Recipe",
    "ServerConfig",
    "StoreConfig",
    "codec_record",
    "config_digest",
    "from_dict",
    "origins",
    "read_toml",
    "to_toml",
]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The network by import path, so that a run can be reopened without Python code."""

    factory: str = ""
    """``package.module:callable`` that returns the unsplit nn.Module."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """What the factory is called with, by keyword."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """The model's inputs, one row of each: ``{x = "float32[1,8,8]"}``. A single one is passed by position, several
    by keyword."""
    at: str = ""
    """The submodule after which to cut."""
    head: str = ""
    """The output layer, where it cannot be found."""
    shared: tuple[str, ...] = ()
    """Inputs that the server may see, such as an attention mask."""

    def __post_init__(self) -> None:
        typed(self)
        for name in ("args", "inputs"):  # as they come back from TOML
            object.__setattr__(self, name, plain(getattr(self, name), f"model.{name}"))
        if self.factory and not all(self.factory.partition(":")):
            raise ConfigError(f"factory = {self.factory!r} must read 'package.module:callable'.")
        if self.factory and not self.at:
            raise ConfigError("model.at is missing: name the submodule after which to cut.")
        if self.factory and not self.inputs:
            raise ConfigError('model.inputs is missing: say what one row is, as in inputs = {x = "float32[1,8,8]"}.')


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """Where the server keeps its files. No computed bit depends on it."""

    blobs: str = part("splitwiper.blobs", ("local",))
    """The place of shards, models and states of training: the server's own folder, or a blob store of your own as
    ``package.module:name``."""
    blobs_args: Mapping[str, Any] = part_args()
    """The settings of a blob store of your own."""

    def __post_init__(self) -> None:
        typed(self)
        check_parts(self)

    @property
    def place(self) -> tuple[str, Mapping[str, Any]]:
        """The import path of the blob store, empty for the local one, and its settings."""
        return part_path(self, "blobs"), self.blobs_args


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a federation."""

    seed: int = 0
    """The root of all randomness that need not be secret."""
    server: ServerConfig = field(default_factory=ServerConfig)
    client: ClientConfig = field(default_factory=ClientConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    store: StoreConfig = field(default_factory=StoreConfig, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        typed(self)
        bounded(self, "seed", 0, high=2**62)
