"""Peers that go silent: in the middle of headers, of a piece, or without a word; others are served meanwhile."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from service.conftest import said, shard
from service.serving import connected, link_of
from splitwiper.service.connections.protocol import Connection
from splitwiper.store import ServerStore

SILENCE = 0.8
"""Seconds; a busy machine may keep a peer that is not silent waiting for half of them. By default it is a minute."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, serve) -> str:
    monkeypatch.setattr(Connection, "silence", SILENCE)
    return serve()


def ended(peer: ssl.SSLSocket) -> float:
    """Seconds until the server breaks off."""
    start = time.monotonic()
    try:
        while peer.recv(4096):
            pass
    except (ConnectionError, ssl.SSLError):
        pass
    return time.monotonic() - start


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: ", b"GET /heal"])
def test_who_never_finishes_its_headers(impatient: str, certs: Path, begun: bytes) -> None:
    with connected(impatient, certs) as peer:
        peer.sendall(begun)
        assert ended(peer) < 30


def test_headers_that_drip(impatient: str, certs: Path) -> None:
    with connected(impatient, certs) as peer:
        start = time.monotonic()
        with pytest.raises((ConnectionError, ssl.SSLError)):
            for letter in b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * 800:
                peer.sendall(bytes([letter]))
                time.sleep(0.05)
        assert time.monotonic() - start < 30


def test_many_of_them_keep_nobody_waiting(impatient: str, certs: Path, http) -> None:
    Connection.silence = 20.0
    peers = [connected(impatient, certs) for _ in range(30)]
    for peer in peers:
        peer.sendall(b"GET /healthz HTTP/1.1\r\nX-A: ")
    start = time.monotonic()
    assert http(impatient).get("/v1/requests").status_code == 200
    assert time.monotonic() - start < 15
    for peer in peers:
        peer.close()


def test_a_line_that_is_cut_in_the_middle_of_a_piece(impatient: str, certs: Path, run, tmp_path: Path) -> None:
    """No goodbye comes: the upload is free again after a while, and goes on from what arrived."""
    path, link = shard(tmp_path / "s", 3000), link_of(impatient, certs, "north")
    data, silent = path.read_bytes(), list[ssl.SSLSocket]()
    once = link._once

    def cut(method: str, place: str, **how: object) -> object:
        if method == "PATCH" and not silent:
            peer = connected(impatient, certs)
            head = f"PATCH {place} HTTP/1.1\r\nHost: x\r\nUpload-Offset: 0\r\nContent-Length: {len(data)}\r\n\r\n"
            peer.sendall(head.encode() + data[:40_000])
            silent.append(peer)  # stays open, and says nothing more
            time.sleep(0.1)
        return once(method, place, **how)

    link._once = cut
    assert link.upload("north", path, said()).generation == 1
    assert ServerStore(run.path / "server").shard("north").rows == 3000
    silent[0].close()


def test_who_is_slow_but_not_silent_is_waited_for(impatient: str, certs: Path, http, tmp_path: Path) -> None:
    path, link = shard(tmp_path / "s", 800), link_of(impatient, certs, "north")
    once = link._once

    def slow(method: str, place: str, **how: object) -> object:
        if method == "PATCH":
            whole = path.read_bytes()
            how["content"] = (time.sleep(0.15) or whole[n : n + 2000] for n in range(0, len(whole), 2000))
        return once(method, place, **how)

    link._once = slow
    start = time.monotonic()
    assert link.upload("north", path, said()).generation == 1
    assert time.monotonic() - start > 2 * SILENCE


def test_frames_that_hold_nothing_are_silence(impatient: str, certs: Path) -> None:
    with connected(impatient, certs) as peer:
        start = time.monotonic()
        peer.sendall(b"POST /v1/board/end HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;a=")
        with pytest.raises((ConnectionError, ssl.SSLError)):
            for _ in range(600):
                peer.sendall(b"b")
                time.sleep(0.02)
        assert time.monotonic() - start < 10


def test_an_answer_that_takes_long_is_not_silence(impatient: str, http, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = ServerStore.clients
    monkeypatch.setattr(ServerStore, "clients", lambda store: (time.sleep(3 * SILENCE), clients(store))[1])
    assert http(impatient, "ops", "operators").get("/v1/status").status_code == 200
