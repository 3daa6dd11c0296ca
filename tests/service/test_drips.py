"""Predictions whose bodies drip: they hold a share of the memory, for a while, and keep nobody else from an answer."""

from __future__ import annotations

import dataclasses
import json
import ssl
import time
from pathlib import Path

import pytest
import torch

from federation.runs import three
from service.serving import connected, link_of
from splitwiper.errors import QuotaError
from splitwiper.service.api import app, receiving
from splitwiper.service.connections.limits import MemoryQuota

MEMORY = 1 << 17
ROWS = {"activation": torch.zeros(2, 8)}


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch, serve, run) -> str:
    """A service with a model, little memory and little patience."""
    monkeypatch.setattr(app, "_MEMORY", MEMORY)
    monkeypatch.setattr(receiving, "PACE", receiving.Pace(grace=1.0, rate=1 << 15, longest=3.5))
    run.learn(three())
    return serve()


def begun(url: str, certs: Path, sent: int, *, of: int = 1 << 20) -> ssl.SSLSocket:
    """A prediction of north's of which so many bytes were sent."""
    peer = connected(url, certs)
    peer.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % of + bytes(sent))
    return peer


def answered(peer: ssl.SSLSocket, *, drips: bool = False) -> tuple[int, dict[str, str], float]:
    """The status, what is said, and the seconds that it took; a byte is sent now and then meanwhile."""
    start, data = time.monotonic(), b""
    peer.settimeout(0.05)
    while b"}" not in data:
        assert time.monotonic() - start < 30, "no answer came"
        try:
            data += (more := peer.recv(4096))
            assert more, "broken off without an answer"
        except TimeoutError:
            if drips:
                peer.sendall(b"x")
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body), time.monotonic() - start


def test_one_drips_and_another_is_answered(scarce: str, certs: Path) -> None:
    south, north = (link_of(scarce, certs, name, tries=1) for name in ("south", "north"))
    start = time.monotonic()
    with begun(scarce, certs, MEMORY // 2 - 500) as peer:
        time.sleep(0.3)
        with begun(scarce, certs, MEMORY // 4) as second:
            status, told, _ = answered(second)
            assert (status, told["kind"]) == (429, "QuotaError") and "in smaller parts" in told["message"]
        with pytest.raises(QuotaError, match="what 'north' sends"):
            north.predict("north", {"activation": torch.zeros(100, 8)})
        for _ in range(5):
            assert south.predict("south", ROWS).logits.shape == (2, 4)
        status, told, _ = answered(peer, drips=True)
        assert (status, told["kind"]) == (408, "SlowError") and "over a faster line" in told["message"]
        assert time.monotonic() - start > 2.5
        peer.settimeout(10)
        assert peer.recv(10) == b""  # and the connection is closed
    assert north.predict("north", {"activation": torch.zeros(100, 8)}).logits.shape == (100, 4)


@pytest.mark.parametrize("sent", [0, 10])
def test_what_never_comes_is_not_waited_for(scarce: str, certs: Path, sent: int) -> None:
    with begun(scarce, certs, sent) as peer:
        status, told, took = answered(peer, drips=sent > 0)
    assert (status, told["kind"]) == (408, "SlowError") and 0.8 < took < 30


def test_what_comes_fast_enough_has_its_time(scarce: str, certs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import save

    # half as fast as it comes: a busy machine takes longer
    monkeypatch.setattr(receiving, "PACE", dataclasses.replace(receiving.PACE, rate=1 << 14))
    body = save({"activation": torch.zeros(900, 8)})
    with begun(scarce, certs, 0, of=len(body)) as peer:
        start = time.monotonic()
        for place in range(0, len(body), 5_000):  # in all longer than the grace
            time.sleep(0.25)
            peer.sendall(body[place : place + 5_000])
        assert time.monotonic() - start > receiving.PACE.grace + 0.2
        assert peer.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_client_takes_no_more_than_is_left_for_others() -> None:
    held = MemoryQuota(1000)
    with held.keeping("north") as first, held.keeping("north") as second, held.keeping("south") as other:
        first.take(300)
        second.take(200)  # half of it all
        with pytest.raises(QuotaError, match=r"'north' sends just now takes 500 bytes of memory, and 500 are free"):
            second.take(1)
        other.take(250)
        with pytest.raises(QuotaError, match="'south'"):
            other.take(1)
        for number in range(5):  # however many there are, one more gets something
            with held.keeping(f"c{number}") as more:
                more.take(125)
    with held.keeping("south") as again:
        again.take(500)


def test_many_that_hold_what_they_may_leave_room() -> None:
    held = MemoryQuota(1 << 20)
    for number in range(12):
        share = (1 << 20) >> (number + 1)
        held.take(f"c{number}", share)
        with pytest.raises(QuotaError):
            held.take(f"c{number}", 1)
    held.take("late", 100)
