"""Connections: how many there may be, with one certificate and before TLS is there, and what logs say of them."""

from __future__ import annotations

import json
import logging
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

import warm
from service.identity.tls import der_of
from service.processes import ENVIRONMENT, SERVER
from service.serving import certificates, connected, in_thread, link_of, service_over
from splitwiper.errors import ConfigError
from splitwiper.service.connections import listening
from splitwiper.service.connections.listening import ConnectionLimits, HttpServer, listen
from splitwiper.service.identity import Trust, client_context
from splitwiper.service.logs import JsonLines, RateLimit

FEW = ConnectionLimits(connections=6, each=3, handshakes=4, seconds=1.0)


@pytest.fixture
def limited(run, certs: Path) -> Iterator[str]:
    """A service that takes few connections."""
    with service_over(run.path / "server", run.halves.server, certs, limits=FEW) as url:
        yield url


def silent(url: str) -> socket.socket:
    """A connection that never says a word."""
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=10)


def gone(peer: socket.socket) -> bool:
    """Whether the server breaks a connection off."""
    try:
        return peer.recv(1) == b""
    except ConnectionError:
        return True


def test_strangers_do_not_keep_clients_out(limited: str, certs: Path) -> None:
    with ExitStack() as stack:
        peers = [stack.enter_context(silent(limited)) for _ in range(14)]
        start = time.monotonic()
        assert link_of(limited, certs, "north", tries=1).tickets("north") == ()
        assert time.monotonic() - start < 9  # in turns of half a second, four at a time
        assert all(map(gone, peers))


def test_a_handshake_has_its_time(limited: str) -> None:
    with silent(limited) as peer:
        start = time.monotonic()
        assert gone(peer) and 0.8 < time.monotonic() - start < 8


def test_a_certificate_has_so_many_connections(limited: str, certs: Path, http) -> None:
    peers = [connected(limited, certs) for _ in range(FEW.each)]
    with connected(limited, certs) as one_more:
        assert gone(one_more)
    assert http(limited, "south").get("/v1/requests").status_code == 200
    peers.pop().close()
    end = time.monotonic() + 10
    while True:  # once the server has noticed
        try:
            assert http(limited).get("/v1/requests").status_code == 200
            break
        except httpx.TransportError:
            assert time.monotonic() < end
            time.sleep(0.05)
    for peer in peers:
        peer.close()


def test_who_finds_all_places_taken_gets_one_later(limited: str, certs: Path) -> None:
    held = [connected(limited, certs, name) for name in ("north", "south") for _ in range(FEW.each)]
    context = client_context(certs / "clients" / "west")
    west = httpx.Client(base_url=limited, verify=context, trust_env=False, timeout=0.5)
    with west, pytest.raises(httpx.TransportError):
        west.get("/v1/requests")
    for peer in held:
        peer.close()
    assert link_of(limited, certs, "west").tickets("west") == ()


def test_what_is_no_tls_is_broken_off(limited: str, caplog: pytest.LogCaptureFixture) -> None:
    with silent(limited) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while peer.recv(100):
            pass
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@contextmanager
def with_few_files(folder: Path) -> Iterator[str]:
    """A server process that may open 160 files."""
    certificates(folder / "certs")
    text = SERVER.replace("PORT", "0").replace("EPOCHS", "1").replace("NUMERICS", "native")
    (folder / "server.toml").write_text(text, encoding="utf-8")
    command = [str(Path(sys.executable).with_name("splitwiper")), "serve", "server.toml", "--store", "store"]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=ENVIRONMENT,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160)),
        )
    try:
        yield process.stdout.readline().split()[1]
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def test_hundreds_of_strangers_on_few_descriptors(tmp_path: Path) -> None:
    with with_few_files(tmp_path) as url, ExitStack() as stack:
        for _ in range(150):
            peer = stack.enter_context(closing(socket.socket()))
            peer.setblocking(False)
            peer.connect_ex(("127.0.0.1", int(url.rpartition(":")[2])))
        with closing(link_of(url, tmp_path / "certs", "north")) as link:
            assert link.tickets("north") == ()
    text = (tmp_path / "server.log").read_text(encoding="utf-8")
    assert len(text) < 50_000 and all(line.startswith("{") for line in text.splitlines())
    assert any("160 files" in json.loads(line)["message"] for line in text.splitlines())


def test_a_socket_that_cannot_be_accepted_is_tried_again(
    run, certs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing, accept = [OSError(24, "Too many open files")] * 3, socket.socket.accept

    def sometimes(listening: socket.socket) -> object:
        if failing:
            raise failing.pop()
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", sometimes)
    with service_over(run.path / "server", run.halves.server, certs) as url:
        assert link_of(url, certs, "north").tickets("north") == ()
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == ["no connection could be accepted: [Errno 24] Too many open files"] * 3


def test_an_address_that_is_taken_is_told() -> None:
    with closing(listen("127.0.0.1", 0)[0]) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{port}: .*in use.*--port"):
            listen("127.0.0.1", port)
    with pytest.raises(ConfigError, match=r"cannot listen on nowhere\.invalid:1"):
        listen("nowhere.invalid", 1)


def test_a_server_whose_port_is_taken_ends_with_a_message(tmp_path: Path) -> None:
    certificates(tmp_path / "certs")
    with closing(listen("127.0.0.1", 0)[0]) as taken:
        text = SERVER.replace("PORT", str(taken.getsockname()[1])).replace("EPOCHS", "1").replace("NUMERICS", "native")
        (tmp_path / "server.toml").write_text(text, encoding="utf-8")
        command = ["splitwiper", "serve", "server.toml", "--store", "store"]
        with (tmp_path / "log").open("w") as log:
            process = warm.start(command, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=log)
            assert process.wait(60) == 2
            process.stdout.close()
    told = " ".join((tmp_path / "log").read_text(encoding="utf-8").split())
    assert told.startswith("error: cannot listen on 127.0.0.1:") and "use. Stop the program" in told


def test_a_name_with_several_addresses() -> None:
    sockets = listen("localhost", 0)
    assert len({one.getsockname()[1] for one in sockets}) == 1

    async def app(scope: dict[str, object], receive: object, send: object) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})

    server = HttpServer(app, sockets, ConnectionLimits(), secured=None)
    with in_thread(server):
        for one in sockets:
            host = one.getsockname()[0]
            address = f"http://[{host}]" if ":" in host else f"http://{host}"
            answer = httpx.get(f"{address}:{one.getsockname()[1]}/", trust_env=False)
            assert answer.status_code == 204


def test_logs_are_limited_and_say_what_was_left_out() -> None:
    now, lines = [0.0], list[str]()
    limit = RateLimit(burst=3, seconds=10.0, clock=lambda: now[0])

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler, log = Kept(), logging.getLogger("test-of-limits")
    handler.setFormatter(JsonLines())
    handler.addFilter(limit)
    log.propagate = False
    log.addHandler(handler)
    try:
        for _ in range(1000):
            log.error("again")
        now[0] = 10.0
        log.error("later")
        log.error("too soon")
    finally:
        log.removeHandler(handler)
    told = [json.loads(line) for line in lines]
    assert [one["message"] for one in told] == ["again"] * 3 + ["later"] and told[-1]["left_out"] == 997


def test_a_certificate_whose_signature_is_spelled_otherwise_is_the_same(certs: Path) -> None:
    """ECDSA has two signatures for one: whoever holds a certificate could otherwise count as two."""
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of the curve P-256
    der = der_of(certs / "clients" / "north")
    certificate = x509.load_der_x509_certificate(der)
    r, s = decode_dss_signature(certificate.signature)
    spelled = encode_dss_signature(r, order - s)
    algorithm = bytes.fromhex("300a06082a8648ce3d040302")  # ECDSA with SHA-256
    body = certificate.tbs_certificate_bytes + algorithm + bytes([3, len(spelled) + 1, 0]) + spelled
    other = b"\x30\x82" + len(body).to_bytes(2, "big") + body
    assert other != der and Trust(certs / "server").principal(other).name == "north"
    counted = listening._signed_part(der)
    assert listening._signed_part(other) == counted != listening._signed_part(der_of(certs / "clients" / "south"))
    assert listening._signed_part(None) is None
