"""Digests that are taken while an upload comes in: after kills, restarts, full disks, lies, mix-ups and replays."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import threading
import time
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.conftest import announced, finished, said, shard
from service.processes import Running
from service.serving import link_of
from splitwiper.errors import DataError, DiskFullError
from splitwiper.server import Server
from splitwiper.service.identity import client_context
from splitwiper.service.records import appending
from splitwiper.service.records.appending import append
from splitwiper.service.site.own_key import OwnKey
from splitwiper.store import ServerStore, files, pieces
from splitwiper.store.files import file_digest
from splitwiper.store.pieces import Passing


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces and batches of a few bytes."""
    for module, name, size in ((files, "PIECE", 1000), (pieces, "PIECE", 1000), (appending, "_BATCH", 300)):
        monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(appending, "_SYNC", 900)


def taken(root: Path, path: Path) -> None:
    """The server has the file, and its database says what is in it."""
    store = ServerStore(root)
    record = store.shard("north")
    assert record.digest == file_digest(path)
    store.open(record)


def test_killed_in_mid_piece(tmp_path: Path) -> None:
    path, server = shard(tmp_path / "s", 90_000), Running(tmp_path, signed=False)
    data, stop = path.read_bytes(), threading.Event()
    context = client_context(server.certs / "clients" / "north")
    own = OwnKey(tmp_path, ServerStore(tmp_path / "store").database.meta("run") or "")
    link_of(server.url, server.certs, "north", signer=own).register("north")
    begin = announced(path, signed=own.sign_shard("north", file_digest(path), said(), serial=1))

    def some():
        for start in range(0, 5 << 19, 1 << 16):
            yield data[start : start + (1 << 16)]
        stop.wait(30)

    with httpx.Client(base_url=server.url, verify=context, trust_env=False, timeout=30) as north:
        place = f"/v1/uploads/{north.post('/v1/uploads', json=begin).json()['id']}"
        headers = {"Upload-Offset": "0", "Content-Length": str(len(data))}

        def send() -> None:
            with suppress(Exception):  # httpx and h11 say differently that nobody is there any more
                north.patch(place, content=some(), headers=headers)

        sender = threading.Thread(target=send)
        sender.start()
        part, end = tmp_path / "store" / "uploads", time.monotonic() + 20
        while sum(p.stat().st_size for p in part.iterdir()) < 2 << 20:
            assert time.monotonic() < end, "nothing arrived"
            time.sleep(0.02)
        server.kill()
        stop.set()
        sender.join(30)
    server.start()
    try:
        with closing(link_of(server.url, server.certs, "north", signer=own)) as link:
            before = link._call("POST", "/v1/uploads", json=begin).json()["offset"]
            assert 2 << 20 <= before < len(data)
            assert link.upload("north", path, said()).digest == file_digest(path)
        taken(tmp_path / "store", path)
    finally:
        server.kill()


@pytest.mark.usefixtures("small")
def test_a_restart_in_mid_piece(serve, http, run, certs: Path, tmp_path: Path) -> None:
    path, first = shard(tmp_path / "s", 200), serve()
    data, north = path.read_bytes(), http(first)
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"
    assert north.patch(place, content=data[:2345], headers={"Upload-Offset": "0"}).json()["offset"] == 2345
    again = serve()  # which knows of no digests
    assert http(again).get(place).json()["offset"] == 2345
    assert link_of(again, certs, "north").upload("north", path, said()).digest == file_digest(path)
    taken(run.path / "server", path)


@pytest.mark.usefixtures("small")
def test_out_of_order_and_repeated(url: str, http, run, tmp_path: Path) -> None:
    path, draw, north = shard(tmp_path / "s", 300), random.Random(3), http(url)
    data, here = path.read_bytes(), 0
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"
    while here < len(data):
        for wrong in {0, max(0, here - 500), here + 1} - {here}:
            odd = north.patch(place, content=data[wrong : wrong + 700], headers={"Upload-Offset": str(wrong)})
            assert odd.status_code == 422 and f"the upload is at {here}" in odd.json()["message"]
        piece = data[here : here + draw.randrange(1, 1500)]
        here = north.patch(place, content=piece, headers={"Upload-Offset": str(here)}).json()["offset"]
    assert north.post(f"{place}/finish", json=finished(path)).json()["digest"] == file_digest(path)
    assert north.post(f"{place}/finish", json=finished(path)).status_code == 404
    taken(run.path / "server", path)


def test_a_client_that_lies_about_the_digest(url: str, http, run, tmp_path: Path) -> None:
    path, other, north = shard(tmp_path / "s"), shard(tmp_path / "o", value=0.25), http(url)
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"
    north.patch(place, content=path.read_bytes(), headers={"Upload-Offset": "0"})
    told = north.post(f"{place}/finish", json=finished(other))
    assert told.status_code == 422 and "its digest differs" in told.json()["message"]
    assert ServerStore(run.path / "server").shard("north") is None
    assert list((run.path / "server" / "uploads").iterdir()) == []


def test_a_server_that_says_that_it_has_something_else(url: str, link, tmp_path: Path, monkeypatch) -> None:
    call = link._call

    def lies(method: str, path: str, **more: Any) -> httpx.Response:
        answer = call(method, path, **more)
        if path.endswith("/finish"):
            return httpx.Response(200, json={**answer.json(), "digest": "0" * 64})
        return answer

    monkeypatch.setattr(link, "_call", lies)
    with pytest.raises(DataError, match="says that it has another shard"):
        link.upload("north", shard(tmp_path / "s"), said())


@pytest.mark.parametrize("marks", ["differ", "are one"])
def test_two_files_of_one_size(url: str, http, link, run, tmp_path: Path, marks: str) -> None:
    one, two = shard(tmp_path / "1", 50), shard(tmp_path / "2", 50, value=0.25)
    assert one.stat().st_size == two.stat().st_size
    north = http(url)
    begin = announced(one) if marks == "differ" else announced(one, mark=file_digest(two))
    place = f"/v1/uploads/{north.post('/v1/uploads', json=begin).json()['id']}"
    north.patch(place, content=one.read_bytes()[:1500], headers={"Upload-Offset": "0"})
    assert link.upload("north", two, said()).digest == file_digest(two)
    taken(run.path / "server", two)
    assert north.get(place).status_code == 404  # given up: another shard was taken


@pytest.mark.usefixtures("small")
def test_a_disk_that_fills_leaves_a_beginning(tmp_path: Path) -> None:
    data, path, passing = random.Random(7).randbytes(5000), tmp_path / "f", Passing()
    (tmp_path / "whole").write_bytes(data)
    steps = 0

    async def come(start: int) -> AsyncIterator[bytes]:
        for place in range(start, len(data), 100):
            yield data[place : min(place + 100, len(data))]

    def full(step: str, _: Path) -> None:
        nonlocal steps
        steps += step == "append:before"
        if steps == 4 and step == "append:before":
            raise OSError(errno.ENOSPC, "full")

    with files.watch(full), pytest.raises(DiskFullError):
        asyncio.run(append(path, come(0), limit=len(data), passing=passing))
    there = path.read_bytes()
    assert there == data[: len(there)] and 0 < len(there) < len(data)
    asyncio.run(append(path, come(len(there)), limit=len(data), passing=passing))
    assert path.read_bytes() == data and passing.digest(path) == file_digest(tmp_path / "whole")


@pytest.mark.parametrize("most", [10, 149, 10_000])
@pytest.mark.usefixtures("small")
def test_a_system_that_takes_less_than_it_is_given(tmp_path: Path, monkeypatch, most: int) -> None:
    data = random.Random(7).randbytes(2_345)
    (tmp_path / "whole").write_bytes(data)
    write = os.write
    monkeypatch.setattr(appending.os, "write", lambda to, rest: write(to, rest[:most]))

    async def come() -> AsyncIterator[bytes]:
        for place in range(0, len(data), 11):
            yield data[place : place + 11]

    path, passing = tmp_path / "part", Passing()
    asyncio.run(append(path, come(), limit=len(data), passing=passing))
    assert path.read_bytes() == data and passing.digest(path) == file_digest(tmp_path / "whole")


def test_a_copy_is_digested_itself(run, tmp_path: Path) -> None:
    path, server = shard(tmp_path / "s"), Server(ServerStore(run.path / "server"), run.halves.server)
    (tmp_path / "link").symlink_to(path)  # it is copied, not given a second name
    assert server.upload("north", tmp_path / "link", said(), digest="0" * 64).digest == file_digest(path)
    server.store.database.close()
