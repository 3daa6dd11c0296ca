"""Where a client's home finds its server, and what its half is made of: ``home.toml``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from splitwiper.config import ModelConfig, from_dict, read_toml
from splitwiper.config.settings import bounded
from splitwiper.errors import ConfigError, NotFoundError
from splitwiper.service.calls.config import CallerConfig
from splitwiper.service.calls.guard import LedgerGuard
from splitwiper.service.home.link import HttpsLink
from splitwiper.service.home.own_key import OwnKey
from splitwiper.service.identity import identity_in

FILE = "home.toml"


@dataclass(frozen=True, kw_only=True)
class HomeConfig(CallerConfig):
    """What a client needs to find its server and to build its half."""

    task: str = ""
    """What its labels belong to, where clients do not all share one task."""
    seed: int = 0
    """The federation's."""
    spot_check: float = 0.05
    """The share of predictions that are checked against a downloaded server half although the model is known. A new
    model is always checked."""
    attesters: str = ""
    """A folder with public keys of auditors (and other sites) whose attestations count here."""
    model: ModelConfig = field(default_factory=ModelConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "spot_check", 0, high=1.0)


def read_site(folder: Path) -> HomeConfig:
    """Read what a site's folder says of itself.

    Raises:
        NotFoundError: it is no site's folder.
        ConfigError: the file is damaged; the message names it.
    """
    path = folder / FILE
    if not path.exists():
        raise NotFoundError(f"there is no client's site in {folder}: join first ('splitwiper join').")
    values = read_toml(path)
    try:
        return from_dict(HomeConfig, values)
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem} Restore the file from a backup of the folder.") from problem


def check_name(folder: Path, config: HomeConfig) -> None:
    """See that a site has the name that its certificate states; a token's name only the server knows.

    Raises:
        ConfigError: it has another one.
    """
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
    config: HomeConfig,
    signer: OwnKey | None = None,
    guard: LedgerGuard | None = None,
    *,
    transfer: str = "none",
) -> HttpsLink:
    """Return a link to a home's server.

    Args:
        folder: the home.
        config: where its server is.
        signer: signs requests to forget, shards and withdrawals.
        guard: checks the ledger head of every answer.
        transfer: how shards travel.
    """
    return HttpsLink(config.url, signer=signer, guard=guard, transfer=transfer, **config.credentials(folder))
