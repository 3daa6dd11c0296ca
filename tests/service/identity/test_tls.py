"""Who gets through real TLS on loopback, and who does not."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import warnings
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from service.identity.tls import REFUSED, Server, away, der_of, mixed, without_certificate
from splitwiper.errors import CorruptError, IdentityError, NotFoundError
from splitwiper.service.identity import Authority, Trust, client_context, server_context
from splitwiper.service.identity.certificate_builder import key_pem, new_key
from splitwiper.service.identity.index import Clock
from splitwiper.store.files import write_bytes


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_clients_and_operators_are_known(certs: Path, north: Path, version: ssl.TLSVersion) -> None:
    with Server(certs / "server") as server:
        for folder, who in ((north, "client 'north'"), (certs / "operators" / "anna", "operator 'anna'")):
            context = client_context(folder)
            context.maximum_version = version
            assert server.ask(context) == who
            assert server.ask(context, "127.0.0.1") == who
    assert server.refused == []


def test_the_newest_version_is_preferred_and_sessions_are_not_resumed(certs: Path, north: Path) -> None:
    with Server(certs / "server") as server:
        context = client_context(north)
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=2) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as connection,
        ):
            connection.recv(100)
            assert connection.version() == "TLSv1.3"
            assert connection.session is None or not connection.session.has_ticket


def test_no_certificate(certs: Path, north: Path) -> None:
    with Server(certs / "server") as server, pytest.raises(REFUSED):
        server.ask(without_certificate(north))
    assert "peer did not return a certificate" in server.refused[0]
    with pytest.raises(IdentityError, match="no certificate was shown"):
        Trust(certs / "server").principal(None)


@pytest.mark.parametrize(("clock", "why"), [(away(days=-400), "expired"), (away(days=2), "not yet valid")])
def test_wrong_times(tmp_path: Path, clock: Clock, why: str) -> None:
    certs = Authority.create(tmp_path, "ward", ["localhost"], server_days=1000, clock=away(days=-500)).folder
    Authority(certs, clock=clock).issue_client("late")
    Authority(certs).issue_client("now")
    with Server(certs / "server") as server:
        with pytest.raises(REFUSED):
            server.ask(client_context(certs / "clients" / "late"))
        assert server.ask(client_context(certs / "clients" / "now")) == "client 'now'"
    assert why in server.refused[0]


def test_revocation_needs_no_restart(authority: Authority, certs: Path, north: Path) -> None:
    with Server(certs / "server") as server:
        context = client_context(north)
        assert server.ask(context) == "client 'north'"
        authority.revoke("north")
        with pytest.raises(REFUSED):
            server.ask(context)
        assert server.ask(client_context(certs / "operators" / "anna")) == "operator 'anna'"
    assert "certificate revoked" in server.refused[0]


def test_a_connection_that_is_open_is_noticed_by_trust(authority: Authority, certs: Path, north: Path) -> None:
    with Server(certs / "server") as server:
        assert server.trust.principal(der_of(north)).name == "north"
        authority.revoke("north")
        with pytest.raises(IdentityError, match="was revoked"):
            server.trust.principal(der_of(north))


def test_resumed_sessions(authority: Authority, certs: Path, north: Path) -> None:
    """A session of TLS 1.2 may be resumed; who it belongs to is asked all the same."""
    context = client_context(north)
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def ask(session: ssl.SSLSession | None) -> tuple[str, ssl.SSLSession | None]:
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=2) as raw,
            context.wrap_socket(raw, server_hostname="localhost", session=session) as connection,
        ):
            return connection.recv(1000).decode(), connection.session

    with Server(certs / "server") as server:
        who, session = ask(None)
        assert who == "client 'north'"
        authority.revoke("north")
        try:
            said, _ = ask(session)
        except REFUSED:
            said = "refused"
        assert said.startswith("refused")


def test_asyncio(authority: Authority, certs: Path, north: Path) -> None:
    """Servers on asyncio see changed files as well: they have no sockets of their own, but objects."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        answered.append(der)
        writer.write(trust.principal(der).serial.encode())
        await writer.drain()
        writer.close()

    async def ask(port: int) -> str:
        context = client_context(north)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        try:
            return (await reader.read()).decode()
        finally:
            writer.close()
            with suppress(*REFUSED):
                await writer.wait_closed()

    async def both() -> None:
        context = server_context(certs / "server")
        async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
            port = server.sockets[0].getsockname()[1]
            first = await ask(port)
            second = authority.rotate("north").serial
            authority.rotate("server")
            assert (await ask(port), first != second) == (second, True)
            authority.revoke("north")
            answered.clear()
            with suppress(*REFUSED):
                assert await ask(port) == ""
            assert answered == [], "refused before the server's program heard of it"

    answered: list[bytes] = []
    trust = Trust(certs / "server")
    asyncio.run(both())


def test_another_authority(certs: Path, north: Path, other: Authority, tmp_path: Path) -> None:
    stranger = mixed(tmp_path / "stranger", ca=north, own=other.folder / "clients" / "north")
    with Server(certs / "server") as server:
        with pytest.raises(REFUSED):
            server.ask(client_context(stranger))
        with pytest.raises(ssl.SSLCertVerificationError):
            server.ask(client_context(other.folder / "clients" / "north"))


def test_a_server_is_no_client_and_a_client_no_server(certs: Path, north: Path, tmp_path: Path) -> None:
    with Server(certs / "server") as server, pytest.raises(REFUSED):
        server.ask(client_context(certs / "server"))
    assert "unsupported certificate purpose" in server.refused[0] or "unsuitable" in server.refused[0]
    posing = mixed(tmp_path / "posing", ca=north, own=north)
    for name in ("revoked.pem", "superseded.pem"):
        (posing / name).write_bytes((certs / "server" / name).read_bytes())
    with Server(posing) as server:
        context = client_context(north)
        context.check_hostname = False
        with pytest.raises(ssl.SSLCertVerificationError, match=r"purpose|unsuitable"):
            server.ask(context)


def test_old_versions_of_tls(certs: Path, north: Path) -> None:
    context = client_context(north)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with Server(certs / "server") as server, pytest.raises(REFUSED):
        server.ask(context)
    assert "UNSUPPORTED_PROTOCOL" in server.refused[0] or "unsupported protocol" in server.refused[0]


@pytest.mark.parametrize("host", ["elsewhere.example.org", "127.0.0.2"])
def test_a_server_by_another_name(certs: Path, north: Path, host: str) -> None:
    with (
        Server(certs / "server") as server,
        pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch|not valid for"),
    ):
        server.ask(client_context(north), host)


def test_rotation_with_and_without_overlap(authority: Authority, certs: Path, north: Path, tmp_path: Path) -> None:
    with Server(certs / "server") as server:
        first = client_context(north)
        authority.rotate("north", overlap=timedelta(days=1))
        second = client_context(north)
        assert server.ask(first) == server.ask(second) == "client 'north'"
        authority.rotate("north")
        with pytest.raises(REFUSED):
            server.ask(second)
        assert server.ask(first) == server.ask(client_context(north)) == "client 'north'"
        authority.revoke("north")
        for context in (first, client_context(north)):
            with pytest.raises(REFUSED):
                server.ask(context)


def test_two_authorities_side_by_side(certs: Path, north: Path, other: Authority, tmp_path: Path) -> None:
    for name in ("ca.pem", "revoked.pem"):
        path = certs / "server" / name
        path.write_bytes(path.read_bytes() + (other.folder / "server" / name).read_bytes())
    both = mixed(tmp_path / "both", ca=north, own=other.folder / "clients" / "north")
    with Server(certs / "server") as server:
        assert server.ask(client_context(north)) == server.ask(client_context(both)) == "client 'north'"


def test_a_revoked_server(authority: Authority, certs: Path, north: Path) -> None:
    with Server(certs / "server") as server:
        authority.revoke("server")
        assert server.ask(client_context(north)) == "client 'north'", "clients have no list unless they are given one"
        (north / "revoked.pem").write_bytes((certs / "server" / "revoked.pem").read_bytes())
        with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
            server.ask(client_context(north))


def test_files_in_the_middle_of_a_copy(certs: Path, north: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Server(certs / "server") as server, caplog.at_level(logging.WARNING, "splitwiper"):
        whole = (certs / "server" / "key.pem").read_bytes()
        write_bytes(certs / "server" / "key.pem", key_pem(new_key()))
        assert server.ask(client_context(north)) == "client 'north'"
        assert "changed and are not used" in caplog.text
        write_bytes(certs / "server" / "key.pem", whole)
        assert server.ask(client_context(north)) == "client 'north'"


def test_folders_that_cannot_be_used(certs: Path, north: Path) -> None:
    key = certs / "server" / "key.pem"
    key.chmod(0o644)
    with pytest.raises(IdentityError, match=r"permissions 644.*chmod 600"):
        server_context(certs / "server")
    key.chmod(0o600)
    write_bytes(key, key_pem(new_key()))
    with pytest.raises(CorruptError, match="cannot be used together"):
        server_context(certs / "server")
    write_bytes(key, key_pem(new_key(), secret=b"a passphrase of some length"))
    with pytest.raises(CorruptError, match="encrypted"):
        server_context(certs / "server")
    (north / "ca.pem").write_bytes(b"nothing")
    with pytest.raises(CorruptError, match=r"ca\.pem cannot be read"):
        client_context(north)
    (north / "ca.pem").unlink()
    with pytest.raises(NotFoundError, match=r"no ca\.pem in .*copy the whole folder"):
        client_context(north)
