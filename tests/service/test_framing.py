"""What comes beside bodies: headers, trailers, frames of chunks, calls behind calls; never more than anybody needs."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from service.conftest import announced, finished, shard
from service.serving import connected

CALL = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"POST /v1/board/end HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
MANY = 4 << 20
"""Bytes that are sent where no end is expected."""


def talk(peer: ssl.SSLSocket, data: bytes) -> bytes:
    """Send all that the server takes, and return all that it answers before it ends the connection."""
    sending = threading.Thread(target=lambda: send(peer, data), daemon=True)
    sending.start()
    told = answered(peer)
    peer.close()
    sending.join(20)
    return told


def answered(peer: ssl.SSLSocket) -> bytes:
    """Return all that the server answers before it ends the connection."""
    peer.settimeout(20)
    told = b""
    with suppress(ConnectionError, ssl.SSLError):
        while more := peer.recv(1 << 16):
            told += more
    return told


def send(peer: ssl.SSLSocket, data: bytes) -> None:
    with suppress(OSError):
        peer.sendall(data)


def endless(*parts: bytes) -> bytes:
    *before, again = parts
    return b"".join(before) + again * (MANY // len(again))


@pytest.mark.parametrize(
    "data",
    [
        endless(CALL, b"a:b\r\n"),
        endless(CALL, b"X: ", b"a"),
        endless(b"GET /", b"a"),
        endless(b"GET /healthz?", b"a=b&"),
        endless(b"\r\n"),
        endless(b"POST http://x/v1/requests HTTP/1.0\r\n", b"a:\r\n"),
    ],
    ids=["headers", "one header", "path", "query", "empty lines", "old and absolute"],
)
def test_headers_without_end_are_refused(url: str, certs: Path, data: bytes) -> None:
    with connected(url, certs) as peer:
        head, _, body = talk(peer, data).partition(b"\r\n\r\n")
    # what the server could not read any more may have swallowed its answer
    assert not head or (head.startswith(b"HTTP/1.1 431 ") and "32,768 bytes" in json.loads(body)["message"])


def test_the_refusal_is_read(url: str, certs: Path) -> None:
    for data, status in ((CALL + b"X: " + b"a" * (1 << 15), b"431"), (b"nonsense\r\n\r\n", b"400")):
        with connected(url, certs) as peer:
            peer.sendall(data)  # before it reads: two threads must not use one TLS connection, if both matter
            assert answered(peer).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    "data",
    [
        endless(CHUNKED, b"2\r\n{}\r\n0\r\n", b"a:b\r\n"),
        CHUNKED + b"2\r\n{}\r\n0\r\na: b\r\n\r\n",
        endless(CHUNKED, b"2\r\n{}\r\n0\r\na:", b"b"),
        endless(CHUNKED, b"1;a=", b"b"),
        endless(CHUNKED, b"1\r\na\r\n"),
    ],
    ids=["trailers", "one trailer", "an endless one", "an extension", "tiny chunks"],
)
def test_what_frames_a_body_is_bounded(url: str, certs: Path, data: bytes) -> None:
    with connected(url, certs) as peer:
        assert talk(peer, data) == b""


def test_few_calls_wait_on_one_connection(url: str, certs: Path) -> None:
    last = CALL + b"Connection: close\r\n\r\n"
    with connected(url, certs) as peer:
        assert talk(peer, (CALL + b"\r\n") * 3 + last).count(b"HTTP/1.1 200") == 4
    with connected(url, certs) as peer:
        assert talk(peer, (CALL + b"\r\n") * 1000 + last).count(b"HTTP/1.1 200") <= 4


def test_calls_one_after_another_do_not_add_up(url: str, http) -> None:
    north = http(url)
    for _ in range(20):
        assert north.get("/healthz", headers={"X-Long": "a" * 8000}).status_code == 200


def test_what_others_send_still_works(url: str, certs: Path) -> None:
    tiny = b"".join(b"1\r\n%c\r\n" % letter for letter in b'{"topic": "labels/7"}') + b"0\r\n\r\n"
    closing = CHUNKED.replace(b"Host", b"Content-Type: application/json\r\nConnection: close\r\nHost")
    calls = {
        b"GET https://127.0.0.1/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n": b"HTTP/1.1 200",
        b"GET /healthz HTTP/1.0\r\n\r\n": b"HTTP/1.1 200",
        closing + tiny: b"HTTP/1.1 204",
        closing.replace(b"Host", b"Expect: 100-continue\r\nHost") + tiny: b"HTTP/1.1 100",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n": b"HTTP/1.1 404",
    }
    for call, answer in calls.items():
        with connected(url, certs) as peer:
            peer.sendall(call)  # not beside reading, as `talk` does: two threads may disturb each other in OpenSSL
            assert answered(peer).startswith(answer), call


def test_shards_in_small_chunks_arrive(url: str, http, tmp_path: Path) -> None:
    path, north = shard(tmp_path / "s", 30_000), http(url)
    data = path.read_bytes()

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(data), 256):
            yield data[start : start + 256]

    assert len(data) > 30 * (1 << 15)
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"
    assert north.patch(place, content=pieces(), headers={"Upload-Offset": "0"}).json()["offset"] == len(data)
    assert north.post(f"{place}/finish", json=finished(path)).json()["generation"] == 1
