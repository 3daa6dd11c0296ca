"""Uploads in pieces: interrupted, resumed, altered, abandoned, too many, too large."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from service.conftest import announced, finished, said, shard
from service.serving import link_of
from splitwiper.errors import BusyError, DataError, QuotaError
from splitwiper.server import Server
from splitwiper.service.records.appending import append
from splitwiper.service.records.database import service_database
from splitwiper.service.records.uploads import drop
from splitwiper.store import ServerStore
from splitwiper.store.pieces import Passing
from splitwiper.wire import Statement


def incoming(run) -> list[str]:
    return sorted(path.name for path in (run.path / "server" / "uploads").iterdir())


def test_it_goes_on_where_it_was(url: str, http, run, tmp_path: Path) -> None:
    path, north = shard(tmp_path / "s", 50), http(url)
    data, begun = path.read_bytes(), north.post("/v1/uploads", json=announced(path)).json()
    place = f"/v1/uploads/{begun['id']}"
    assert (begun["offset"], begun["size"]) == (0, len(data))
    first = north.patch(place, content=data[:100], headers={"Upload-Offset": "0"})
    assert first.json()["offset"] == 100
    assert north.post("/v1/uploads", json=announced(path)).json() == {**begun, "offset": 100}  # the same again
    odd = north.patch(place, content=data[50:], headers={"Upload-Offset": "50"})
    assert odd.status_code == 422 and "the upload is at 100" in odd.json()["message"]
    early = north.post(f"{place}/finish", json=finished(path))
    assert early.status_code == 422 and "send the rest first" in early.json()["message"]
    north.patch(place, content=data[100:], headers={"Upload-Offset": "100"})
    assert north.post(f"{place}/finish", json=finished(path)).json()["generation"] == 1
    assert incoming(run) == [] and north.get(place).status_code == 404
    assert ServerStore(run.path / "server").shard("north").rows == 50


def test_a_connection_that_breaks_loses_nothing_that_arrived(url: str, http, link, run, tmp_path: Path) -> None:
    path, north = shard(tmp_path / "s", 3000), http(url)
    data = path.read_bytes()
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"

    def broken():
        yield data[:40_000]
        time.sleep(0.3)  # uvicorn forgets what came with the end of the connection, where nobody asked for it yet
        raise ConnectionError("the line broke")

    with pytest.raises(ConnectionError):
        north.patch(place, content=broken(), headers={"Upload-Offset": "0", "Content-Length": str(len(data))})
    end, other = time.monotonic() + 10, http(url)
    while (offset := other.get(place).json()["offset"]) < 40_000 and time.monotonic() < end:
        time.sleep(0.05)
    assert offset == 40_000
    assert link.upload("north", path, said()).generation == 1  # the link finds it and goes on
    assert incoming(run) == []


def test_what_arrives_altered_is_not_taken(url: str, http, run, tmp_path: Path) -> None:
    path, north = shard(tmp_path / "s"), http(url)
    data = bytearray(path.read_bytes())
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"
    data[-1] ^= 1
    north.patch(place, content=bytes(data), headers={"Upload-Offset": "0"})
    told = north.post(f"{place}/finish", json=finished(path))
    assert told.status_code == 422 and "its digest differs" in told.json()["message"]
    assert ServerStore(run.path / "server").shard("north") is None and incoming(run) == []


def test_more_than_was_announced_is_refused(url: str, http, tmp_path: Path) -> None:
    path, north = shard(tmp_path / "s"), http(url)
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"
    told = north.patch(place, content=path.read_bytes() + b"x", headers={"Upload-Offset": "0"})
    assert told.status_code == 422 and "more came than" in told.json()["message"]


def test_limits(serve, certs: Path, http, tmp_path: Path) -> None:
    url = serve(largest=2000, unfinished=2)
    north = http(url)
    large = north.post("/v1/uploads", json=announced(shard(tmp_path / "large", 500)))
    assert large.status_code == 422 and "the limit is 2,000" in large.json()["message"]
    for rows in (2, 3):
        assert north.post("/v1/uploads", json=announced(shard(tmp_path / f"{rows}", rows))).status_code == 201
    third = north.post("/v1/uploads", json=announced(shard(tmp_path / "4", 4)))
    assert third.status_code == 429 and "finish or cancel one" in third.json()["message"]
    with pytest.raises(QuotaError, match="begun 2 uploads"):
        link_of(url, certs, "north", tries=1).upload("north", shard(tmp_path / "5", 5), said())
    assert http(url, "south").post("/v1/uploads", json=announced(shard(tmp_path / "6", 6))).status_code == 201


def test_cancelling_makes_room(serve, http, run, tmp_path: Path) -> None:
    north = http(serve(unfinished=1))
    path = shard(tmp_path / "a")
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"
    north.patch(place, content=path.read_bytes()[:50], headers={"Upload-Offset": "0"})
    assert len(incoming(run)) == 1
    assert north.delete(place).status_code == 204 and incoming(run) == []
    assert north.post("/v1/uploads", json=announced(shard(tmp_path / "b", 9))).status_code == 201


def test_what_is_never_finished_is_given_up(serve, http, run, tmp_path: Path) -> None:
    north = http(serve(unfinished=1, patience=1e-6))
    path = shard(tmp_path / "a")
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"
    north.patch(place, content=path.read_bytes()[:50], headers={"Upload-Offset": "0"})
    time.sleep(0.05)
    assert north.post("/v1/uploads", json=announced(shard(tmp_path / "b", 9))).status_code == 201
    assert north.get(place).status_code == 404 and incoming(run) == []


def test_two_calls_at_one_upload(url: str, http, tmp_path: Path) -> None:
    path, north = shard(tmp_path / "s", 3000), http(url)
    data = path.read_bytes()
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"
    go_on = threading.Event()

    def slow():
        yield data[:1000]
        go_on.wait(10)
        yield data[1000:]

    found: list[httpx.Response] = []
    headers = {"Upload-Offset": "0", "Content-Length": str(len(data))}
    first = threading.Thread(target=lambda: found.append(north.patch(place, content=slow(), headers=headers)))
    first.start()
    second, end, other = None, time.monotonic() + 10, http(url)
    while time.monotonic() < end and (second is None or second.status_code != 409):
        second = other.patch(place, content=b"", headers={"Upload-Offset": "0"})
    assert second is not None and second.status_code == 409 and "another call" in second.json()["message"]
    go_on.set()
    first.join(10)
    assert found[0].json()["offset"] == len(data)


def test_a_shard_that_cannot_be_used_is_refused(link, run, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="NaN"):
        link.upload("north", shard(tmp_path / "s", value=float("nan")), said())
    (tmp_path / "x").write_bytes(b"not a shard at all")
    with pytest.raises(DataError):
        link.upload("north", tmp_path / "x", said())
    assert incoming(run) == [] and ServerStore(run.path / "server").shards() == ()


def test_what_is_sent_to_an_upload_that_was_given_up_leaves_nothing(url: str, http, link, run, tmp_path: Path) -> None:
    """Another shard is taken while an upload is being sent: the upload is over, and no file of it stays."""
    old, new, north = shard(tmp_path / "old", 3000), shard(tmp_path / "new", 6), http(url)
    data = old.read_bytes()
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(old)).json()['id']}"
    north.patch(place, content=data[:1000], headers={"Upload-Offset": "0"})

    def slowly():
        yield data[1000:2000]
        link.upload("north", new, said())
        yield data[2000:]

    headers = {"Upload-Offset": "1000", "Content-Length": str(len(data) - 1000)}
    assert north.patch(place, content=slowly(), headers=headers).status_code == 404
    assert incoming(run) == [] and ServerStore(run.path / "server").shard("north").rows == 6


def test_an_upload_that_ends_while_it_is_finished_is_gone(
    url: str, http, run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker drops uploads of a client whose shard it erases; that is no fault of the server's."""
    root, check, path = run.path / "server", Server.check_admitted, shard(tmp_path / "s")

    def dropped(server: Server, client: str, statement: Statement) -> None:
        with closing(service_database(root)) as database:
            drop(database, root / "uploads", client)
        check(server, client, statement)

    north = http(url)
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"
    north.patch(place, content=path.read_bytes(), headers={"Upload-Offset": "0"})
    monkeypatch.setattr(Server, "check_admitted", dropped)
    answer = north.post(f"{place}/finish", json=finished(path))
    assert answer.status_code == 404 and answer.json()["kind"] == "NotFoundError"


def test_two_servers_do_not_write_into_one_upload(tmp_path: Path) -> None:
    path = tmp_path / "s.part"

    async def pieces():
        yield b"x" * (1 << 20)
        path.write_bytes(path.read_bytes() + b"another server's")
        yield b"y" * (1 << 20)

    path.touch()
    with pytest.raises(BusyError, match="another process writes"):
        asyncio.run(append(path, pieces(), limit=1 << 30, passing=Passing()))
    assert b"y" not in path.read_bytes()
