"""Bodies that are neither shards nor predictions: taken in whole before anybody looks at them, and never too large."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.serving import connected
from splitwiper.service.api import receiving, shapes

CALLS = [
    ("POST", "/v1/uploads"),
    ("POST", "/v1/uploads/0/finish"),
    ("POST", "/v1/withdraw"),
    ("POST", "/v1/requests"),
    ("PUT", "/v1/board/messages/0?topic=labels/0"),
    ("POST", "/v1/board/end"),
    ("GET", "/v1/federation"),
    ("POST", "/v1/nowhere"),
]


@pytest.mark.parametrize(("method", "path"), CALLS)
@pytest.mark.parametrize("told", [True, False])
def test_none_is_larger_than_it_may_be(url: str, http, method: str, path: str, told: bool) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 64 << 20:
            sent += 1 << 16
            yield b" " * (1 << 16)

    headers = {"Content-Type": "application/json", **({"Content-Length": str(64 << 20)} if told else {})}
    answer = http(url).request(method, path, content=endless(), headers=headers)
    assert answer.status_code == 413 and answer.json()["kind"] == "LargeError"
    assert "4,194,304 bytes at most" in answer.json()["message"]


def test_the_largest_one_goes_through(url: str, http) -> None:
    space = b" " * ((4 << 20) - 30)
    answer = http(url).post("/v1/board/end", content=b'{"topic": "labels/7"}' + space)
    assert answer.status_code in (204, 422) and b"LargeError" not in answer.content
    assert http(url).post("/v1/board/end", content=b'{"topic": "labels/7"}' + space + b" " * 30).status_code == 413


@pytest.mark.parametrize("element", [b"{},", b"[]", b"0,", b'{"":'])
def test_one_of_a_million_elements_is_refused_unread(url: str, http, element: bytes) -> None:
    answer = http(url).post("/v1/requests", content=b"[" + element * 1_000_000)
    assert answer.status_code == 422 and "32,768 are the most" in answer.json()["message"]


def test_many_wrong_fields_are_one_problem() -> None:
    """Listing each takes seconds, in which nobody else is answered."""
    many = {f"{number:x}": 0 for number in range(20_000)}
    said = {"config": "c", "initial": "i", "key": "k"}
    for shape, given in (
        (shapes.Ask, many),
        (shapes.SignedShape, {"payload": "", "payloadType": "", "signatures": [many]}),
        (shapes.Withdraw, {**said, "fingerprint": many}),
        (shapes.Withdraw, {**said, "fingerprint": {}, "tickets": [0] * 1000}),
    ):
        with pytest.raises(ValidationError) as caught:
            shape.model_validate(given)
        assert caught.value.error_count() == 1


def test_one_that_drips_is_not_waited_for(url: str, certs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "PACE", receiving.Pace(grace=0.5, rate=1 << 15, longest=2.0))
    with connected(url, certs) as peer:
        peer.sendall(b"POST /v1/requests HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        peer.settimeout(30)
        start, data = time.monotonic(), b""
        while more := peer.recv(4096):
            data += more
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.split()[1] == b"408" and json.loads(body)["kind"] == "SlowError"
    assert time.monotonic() - start < 30


def test_who_leaves_in_the_middle_is_let_go(url: str, certs: Path, http, caplog: pytest.LogCaptureFixture) -> None:
    with connected(url, certs) as peer:
        peer.sendall(b"POST /v1/requests HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    time.sleep(0.3)
    assert http(url).get("/v1/federation").status_code == 200
    assert "a call went wrong" not in caplog.text
