"""Bearer tokens, for a proxy that terminates TLS in front of the service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.conftest import said, shard
from service.serving import OPEN, in_thread, opened
from splitwiper.errors import ConfigError, IdentityError
from splitwiper.service.api import Service, create_app
from splitwiper.service.calls.config import CallerConfig
from splitwiper.service.calls.guard import LedgerGuard
from splitwiper.service.certificate import Log
from splitwiper.service.connections.access import Authenticator
from splitwiper.service.connections.listening import ConnectionLimits, HttpServer, listen
from splitwiper.service.identity import Authority, Principal, Tokens
from splitwiper.service.settings import ServiceConfig
from splitwiper.service.site.link import HttpsLink
from splitwiper.store import ServerStore


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    Authority.create(tmp_path / "certs", "tests", hosts=["127.0.0.1"])
    return Tokens(tmp_path / "certs" / "server")


@pytest.fixture
def url(run, tokens: Tokens) -> Iterator[str]:
    """Plain HTTP, as behind a proxy on the same machine."""
    service = Service(run.path / "server", run.halves.server, ServiceConfig(**OPEN), Authenticator(tokens=tokens))
    server = HttpServer(create_app(service), listen("127.0.0.1", 0), ConnectionLimits(), secured=None)
    with in_thread(server):
        yield server.url


def link(url: str, token: str) -> HttpsLink:
    opened.append(HttpsLink(url, token=token, tries=1))
    return opened[-1]


def test_a_token_is_an_identity(url: str, tokens: Tokens, tmp_path: Path) -> None:
    north, south = (tokens.add(Principal("client", name)) for name in ("north", "south"))
    assert link(url, north).upload("north", shard(tmp_path / "s"), said()).generation == 1
    assert link(url, south).tickets("south") == ()
    with pytest.raises(IdentityError, match="may not do this"):
        link(url, north)._call("GET", "/v1/status")
    ops = tokens.add(Principal("operator", "ops"))
    assert link(url, ops)._call("GET", "/v1/status").json()["clients"]["north"]["rows"] == 6


def test_the_ledger_is_shown_and_checked(url: str, tokens: Tokens, run, tmp_path: Path) -> None:
    store = ServerStore(run.path / "server")
    guard = LedgerGuard(tmp_path / "north", store.database.meta("run"), tmp_path)
    north = HttpsLink(url, token=tokens.add(Principal("client", "north")), tries=1, guard=guard)
    opened.append(north)
    north.upload("north", shard(tmp_path / "s"), said())
    assert guard.pins.newest() == Log.of(store).head()
    tokens.revoke("north")
    with pytest.raises(IdentityError, match="revoked"):  # to somebody unknown nothing is shown
        north.tickets("north")


def test_tokens_that_do_not_count(url: str, tokens: Tokens) -> None:
    text = tokens.add(Principal("client", "north"))
    assert link(url, text).tickets("north") == ()
    for odd in ("", "nonsense", text[:-1], text[:-1] + ("a" if text[-1] != "a" else "b"), text + "x", text.upper()):
        with pytest.raises(IdentityError):
            link(url, odd).tickets("north")
    tokens.revoke("north")
    with pytest.raises(IdentityError, match="revoked"):
        link(url, text).tickets("north")


def test_two_tokens_are_refused(url: str, tokens: Tokens) -> None:
    north, south = (tokens.add(Principal("client", name)) for name in ("north", "south"))
    both = [("Authorization", f"Bearer {north}"), ("Authorization", f"Bearer {south}")]
    answer = httpx.get(f"{url}/v1/requests", headers=both, trust_env=False)
    assert answer.status_code == 401 and "several 'Authorization' headers" in answer.json()["message"]
    assert httpx.get(f"{url}/v1/requests", headers=both[:1], trust_env=False).status_code == 200


def test_tokens_stay_on_this_machine_unless_a_proxy_is_said_to_be_there() -> None:
    with pytest.raises(ConfigError, match=r"in plain HTTP.*behind_proxy"):
        ServiceConfig(host="0.0.0.0", identity="tokens")
    for config in ({"host": "0.0.0.0", "behind_proxy": True}, {"host": "::1"}, {}):
        ServiceConfig(identity="tokens", **config)


def test_a_client_sends_no_token_in_the_clear() -> None:
    said = {"name": "north", "token": "token"}
    for url in ("https://example.org", "http://127.0.0.1:8000", "http://[::1]:8000", "http://localhost:8000"):
        CallerConfig(url=url, **said)
    with pytest.raises(ConfigError, match=r"plain HTTP.*plain_http = true"):
        CallerConfig(url="http://example.org:8000", **said)
    CallerConfig(url="http://example.org:8000", plain_http=True, **said)


def test_a_token_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("swt_x\n", encoding="ascii")
    (tmp_path / "token").chmod(0o640)
    config = CallerConfig(name="north", url="https://example.org", token="token")
    with pytest.raises(IdentityError, match=r"permissions 640.*chmod 600 .*token"):
        config.credentials(tmp_path)
    (tmp_path / "token").chmod(0o600)
    assert config.credentials(tmp_path)["token"] == "swt_x"
