"""Where a client's home finds its server, and what its half is made of: ``home.toml``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splitwiper.config import ModelConfig
from splitwiper.config.settings import typed
from splitwiper.errors import ConfigError
from splitwiper.federation.sources import NAME
from splitwiper.service.home.guard import LedgerGuard
from splitwiper.service.home.link import HttpsLink
from splitwiper.service.identity import client_context
from splitwiper.wire import Request

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
    model: ModelConfig = field(default_factory=ModelConfig)

    def __post_init__(self) -> None:
        typed(self)
        if not NAME.fullmatch(self.name):
            raise ConfigError(f"name = {self.name!r}: a client's name has letters, digits, '.', '_' and '-' alone.")
        if not self.url.startswith(("https://", "http://")):
            raise ConfigError(f"url = {self.url!r} is no address: give https://host:port.")


def connect(
    folder: Path,
    config: HomeConfig,
    sign: Callable[[Request], dict[str, Any]] | None = None,
    guard: LedgerGuard | None = None,
) -> HttpsLink:
    """Return a link to a home's server.

    Args:
        folder: the home.
        config: where its server is.
        sign: signs requests to forget.
        guard: checks the ledger head of every answer.
    """
    token = (folder / config.token).read_text(encoding="utf-8").strip() if config.token else ""
    context = client_context(folder / config.certs) if config.certs else None
    return HttpsLink(config.url, context, token=token, sign=sign, guard=guard)
