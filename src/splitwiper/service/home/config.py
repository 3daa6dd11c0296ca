"""Where a client's home finds its server, and what its half is made of: ``home.toml``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from splitwiper.config import ModelConfig
from splitwiper.config.settings import bounded, typed
from splitwiper.errors import ConfigError
from splitwiper.federation.sources import NAME
from splitwiper.service.calls.guard import LedgerGuard
from splitwiper.service.home.link import HttpsLink
from splitwiper.service.home.own_key import OwnKey
from splitwiper.service.identity import client_context, identity_in

FILE = "home.toml"


@dataclass(frozen=True, kw_only=True)
class HomeConfig:
    """What a client needs to find its server and to build its half."""

    name: str
    """The client's name, as its certificate has it."""
    url: str
    """Where the server is: https://host:port."""
    certs: str = ""
    """The client's folder of certificates; absolute, or relative to the home."""
    token: str = ""
    """A file with a bearer token, where a proxy terminates TLS."""
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
        typed(self)
        bounded(self, "spot_check", 0, high=1.0)
        if not NAME.fullmatch(self.name):
            raise ConfigError(f"name = {self.name!r}: a client's name has letters, digits, '.', '_' and '-' alone.")
        if not self.url.startswith(("https://", "http://")):
            raise ConfigError(f"url = {self.url!r} is no address: give https://host:port.")


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
    folder: Path, config: HomeConfig, signer: OwnKey | None = None, guard: LedgerGuard | None = None
) -> HttpsLink:
    """Return a link to a home's server.

    Args:
        folder: the home.
        config: where its server is.
        signer: signs requests to forget, shards and withdrawals.
        guard: checks the ledger head of every answer.
    """
    token = (folder / config.token).read_text(encoding="utf-8").strip() if config.token else ""
    context = client_context(folder / config.certs) if config.certs else None
    return HttpsLink(config.url, context, token=token, signer=signer, guard=guard)
