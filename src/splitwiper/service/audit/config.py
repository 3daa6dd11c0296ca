"""An auditor's configuration file: where the server is, with which certificate, and which model it should train."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from splitwiper.config import ModelConfig, from_dict, read_toml
from splitwiper.config.settings import typed
from splitwiper.errors import ConfigError
from splitwiper.federation.sources import NAME
from splitwiper.service.certificate import read_public


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """What an auditor needs."""

    name: str
    """The auditor's name, as its certificate has it."""
    url: str
    """Where the server is: https://host:port."""
    certs: str = ""
    """The auditor's folder of certificates; relative to the configuration file."""
    token: str = ""
    """A file with a bearer token, where a proxy terminates TLS."""
    sites: str = ""
    """A folder with the public key of each site as ``NAME.pem``, handed over by the sites themselves; relative to the
    configuration file. Without it, an auditor takes the keys that the ledger has."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The model, as the federation agreed on it: the auditor builds it itself."""

    def __post_init__(self) -> None:
        typed(self)
        if not NAME.fullmatch(self.name):
            raise ConfigError(f"name = {self.name!r}: an auditor's name has letters, digits, '.', '_' and '-' alone.")
        if not self.url.startswith(("https://", "http://")):
            raise ConfigError(f"url = {self.url!r} is no address: give https://host:port.")


def site_keys(folder: Path) -> dict[str, str]:
    """Return the public key of each site, in hex, from a folder with files ``NAME.pem``.

    Raises:
        ConfigError: there is none.
    """
    found = sorted(folder.glob("*.pem"))
    if not found:
        raise ConfigError(f"sites = {str(folder)!r} has no public keys: put each site's there, as NAME.pem.")
    return {path.stem: read_public(path)[0].raw.hex() for path in found}


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
