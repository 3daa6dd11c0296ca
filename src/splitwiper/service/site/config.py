"""A site's configuration, ``site.toml``: how to reach its server, and what its half is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from splitwiper.config import ModelConfig, from_dict, read_toml
from splitwiper.config.settings import bounded
from splitwiper.errors import ConfigError, NotFoundError
from splitwiper.service.calls.config import CallerConfig
from splitwiper.service.calls.guard import LedgerGuard
from splitwiper.service.identity import identity_in
from splitwiper.service.site.link import HttpsLink
from splitwiper.service.site.own_key import OwnKey

FILE, _OLD = "site.toml", "home.toml"


@dataclass(frozen=True, kw_only=True)
class SiteConfig(CallerConfig):
    """What a client needs to reach its server and to build its half."""

    task: str = ""
    """The task of its labels, if clients do not all share one task."""
    seed: int = 0
    """The federation's seed."""
    spot_check: float = 0.05
    """The share of predictions that are checked against a downloaded server half although the model is known. A new
    model is always checked."""
    attesters: str = ""
    """A folder with public keys of auditors (and other sites) whose attestations count here."""
    model: ModelConfig = field(default_factory=ModelConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "spot_check", 0, high=1.0)


def read_site(folder: Path) -> SiteConfig:
    """Read the configuration in a site's folder.

    Raises:
        NotFoundError: it is not a site's folder.
        ConfigError: the file is damaged; the message names it.
    """
    path = folder / FILE
    if not path.exists() and (folder / _OLD).exists():
        raise NotFoundError(f"{folder} was made by an earlier version: rename {_OLD} in it to {FILE}.")
    if not path.exists():
        raise NotFoundError(f"there is no client's site in {folder}: join first ('splitwiper join').")
    values = read_toml(path)
    try:
        return from_dict(SiteConfig, values)
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem} Restore the file from a backup of the folder.") from problem


def check_name(folder: Path, config: SiteConfig) -> None:
    """Check that a site has the name in its certificate. Only the server knows a token's name."""
    if not config.certs:
        return
    stated = identity_in(folder / config.certs)
    if stated != ("client", config.name):
        whose = f"{stated[0]} {stated[1]!r}" if stated else "nobody"
        raise ConfigError(
            f"name = {config.name!r}: the certificate in {config.certs} is that of {whose}. Use the name that the "
            "certificate states, or the folder of the client's own certificate."
        )


def connect(
    folder: Path,
    config: SiteConfig,
    signer: OwnKey | None = None,
    guard: LedgerGuard | None = None,
    *,
    transfer: str = "none",
) -> HttpsLink:
    """Return a link to a site's server."""
    return HttpsLink(config.url, signer=signer, guard=guard, transfer=transfer, **config.credentials(folder))
