"""An auditor's configuration file: the server's address, the auditor's certificate, and the model to expect."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from splitwiper.config import ModelConfig, from_dict, read_toml
from splitwiper.errors import ConfigError
from splitwiper.service.calls.config import CallerConfig
from splitwiper.service.certificate import read_public


@dataclass(frozen=True, kw_only=True)
class AuditConfig(CallerConfig):
    """An auditor's settings."""

    sites: str = ""
    """A folder with the public key of each site as ``NAME.pem``, supplied by the sites themselves; relative to the
    configuration file. Without it the auditor takes the keys in the ledger, and cannot detect a site that the server
    made up."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The model, as the federation agreed on it: the auditor builds it itself."""
    parts: tuple[str, ...] = ()
    """Import paths, ``package.module:name``, of codecs, losses, optimisers and schedules from outside that the server's
    settings may name. The auditor has them installed and knows their code: others are not imported."""


def site_keys(folder: Path, config: AuditConfig) -> dict[str, str] | None:
    """Return the public keys of sites by name, in hex; None if the settings name no folder of keys.

    Relative paths start from ``folder``. Raises `ConfigError` if the folder of keys contains none.
    """
    if not config.sites:
        return None
    paths = sorted((folder / config.sites).glob("*.pem"))
    if not paths:
        raise ConfigError(f"sites = {config.sites!r} has no public keys: put each site's there, as NAME.pem.")
    return {path.stem: read_public(path)[0].raw.hex() for path in paths}


def read_audit(path: Path) -> AuditConfig:
    """Read an auditor's configuration file; a `ConfigError` names the file and the key."""
    try:
        return from_dict(AuditConfig, read_toml(path))
    except FileNotFoundError as problem:
        raise ConfigError(f"there is no configuration file {path}.") from problem
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem}") from problem
