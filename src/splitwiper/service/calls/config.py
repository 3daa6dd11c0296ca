"""Settings of every caller's configuration file: its name, the server's address, and its credentials."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from splitwiper.config.settings import typed
from splitwiper.data.sources import NAME
from splitwiper.errors import ConfigError
from splitwiper.service.identity import client_context
from splitwiper.service.identity.names import is_loopback
from splitwiper.store.keys import check_private


@dataclass(frozen=True, kw_only=True)
class CallerConfig:
    """A site's or auditor's settings for calling the server. Paths are relative to the configuration's folder."""

    name: str
    """The caller's name, as in its certificate."""
    url: str
    """The server's address: https://host:port."""
    certs: str = ""
    """The caller's folder of certificates."""
    token: str = ""
    """A file with a bearer token, for a server behind a proxy that terminates TLS."""
    plain_http: bool = False
    """Whether to call an http:// address that is not on this machine."""

    def __post_init__(self) -> None:
        typed(self)
        if not NAME.fullmatch(self.name):
            raise ConfigError(f"name = {self.name!r}: a name has only letters, digits, '.', '_' and '-'.")
        if not self.url.startswith(("https://", "http://")):
            raise ConfigError(f"url = {self.url!r} is not an address: give https://host:port.")
        host = urlsplit(self.url).hostname or ""
        if self.url.startswith("http://") and not self.plain_http and not is_loopback(host):
            raise ConfigError(
                f"url = {self.url!r}: everything, the token included, would cross the network in plain HTTP. Give the "
                "https:// address of the proxy, or set plain_http = true if the network between is protected otherwise."
            )

    def credentials(self, folder: Path) -> dict[str, Any]:
        """Return the certificates and the token, from the configuration's folder, in the form that `Calls` takes."""
        token = ""
        if self.token:
            path = folder / self.token
            check_private(path, remedy="if somebody may have read it, ask the operator for another token")
            token = path.read_text(encoding="utf-8").strip()
        return {"context": client_context(folder / self.certs) if self.certs else None, "token": token}
