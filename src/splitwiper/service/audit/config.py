"""An auditor's configuration file: where the server is, with which certificate, and which model it should train."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from splitwiper.config import ModelConfig, from_dict, read_toml
from splitwiper.errors import ConfigError
from splitwiper.service.calls.config import CallerConfig


@dataclass(frozen=True, kw_only=True)
class AuditConfig(CallerConfig):
    """What an auditor needs."""

    model: ModelConfig = field(default_factory=ModelConfig)
    """The model, as the federation agreed on it: the auditor builds it itself."""


def read_audit(path: Path) -> AuditConfig:
    """Read an auditor's configuration file.

    Raises:
        ConfigError: naming the file and the key.
    """
    try:
        return from_dict(AuditConfig, read_toml(path))
    except FileNotFoundError as problem:
        raise ConfigError(f"there is no configuration file {path}.") from problem
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem}") from problem
