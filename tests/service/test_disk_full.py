"""The server's disk, and a client's, fill up and are emptied: who asked is told, and nothing acknowledged is lost."""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest

from service.conftest import COMMITTED, announced, said, shard
from service.disks import Disk
from service.processes import Running, answers, data
from service.serving import link_of
from splitwiper.errors import BusyError, DiskFullError, FailingError
from splitwiper.store import ServerStore, files
from splitwiper.wire import Request

# --- a real small disk -------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "small")
    yield made
    made.gone()


@pytest.fixture
def server(tmp_path: Path, disk: Disk) -> Iterator[Running]:
    running = Running(tmp_path, store=disk.folder / "store")
    yield running
    if running.process.poll() is None:
        running.stop()


def waited(found: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not found():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.1)


def logged(folder: Path, words: str) -> bool:
    lines = [json.loads(line) for line in (folder / "server.log").read_text().splitlines() if line.startswith("{")]
    return any(line["level"] == "error" and words in line["message"] for line in lines)


def test_a_server_whose_disk_is_full_says_so_and_recovers(server: Running, disk: Disk, tmp_path: Path) -> None:
    rows, server_store = data(), ServerStore(disk.folder / "store")
    with closing(server.site("north")) as north:
        north.link._tries = 1
        disk.fill()
        with pytest.raises((FailingError, BusyError), match="no room"):
            north.learn(rows["north"])
        assert server_store.shards() == () and server_store.clients() == {}
        disk.empty()
        north.learn(rows["north"])
        before = answers(north, rows["north"][0])
        disk.fill()
        assert answers(north, rows["north"][0]) == before  # reading takes no room
        ticket = north.forget(classes=["bird"])
        told: list[str] = []
        with pytest.raises(FailingError, match="server has no room"):
            north.settle(patience=1.5, on_retry=told.append)
        assert len(told) >= 1 and str(tmp_path) not in told[0]  # tried again; nothing of the server's paths
        assert logged(tmp_path, "no room left")
        ready = north.link._http.get("/readyz")
        assert ready.status_code == 200 and ready.json()["room"] is False
        disk.empty()
        north.settle(patience=20)
        assert north.await_receipt(ticket, patience=60).exact
        assert "bird" not in answers(north, rows["north"][0])
        assert [s.rows for s in server_store.shards()] == [20]


def test_a_disk_that_fills_up_while_training_is_tried_again(server: Running, disk: Disk, tmp_path: Path) -> None:
    rows, server_store = data(), ServerStore(disk.folder / "store")
    with closing(server.site("north")) as north:
        north.learn(rows["north"])
        waited(server_store.model)
        assert server.kill_worker()  # another one comes in a moment, and finds the disk full
        with closing(server.site("south")) as south:
            south.learn(rows["south"])
        disk.fill()
        waited(lambda: logged(tmp_path, "no room left") or server_store.is_current())
        disk.empty()
        waited(lambda: server_store.is_current() and server_store.model())
        assert answers(north, rows["north"][0][:3])
        assert [s.client for s in server_store.shards()] == ["north", "south"]


def test_a_clients_disk_is_full_while_it_forgets(tmp_path: Path, disk: Disk) -> None:
    running = Running(tmp_path)
    try:
        rows = data()
        with closing(running.site("north", folder=disk.folder / "site")) as north:
            north.learn(rows["north"])
            disk.fill()
            with pytest.raises(DiskFullError, match="Make room"):
                north.forget(classes=["bird"])
            assert not north.client.store.suppressed() and not north.client.store.requests("open", "sent", "done")
            disk.empty()
            ticket = north.forget(classes=["bird"])
            disk.fill()
            with pytest.raises(DiskFullError, match="Make room"):
                north.settle(patience=0)
            assert len(north.client.store.suppressed()) == 10  # they stay forgotten
            disk.empty()
            north.settle(patience=20)
            assert north.await_receipt(ticket, patience=60).exact
            assert north.learn(rows["north"]).refused == 10
    finally:
        running.stop()


# --- at every single step ----------------------------------------------------------------------------------------


class Full:
    """The server's disk is full from its n-th step on."""

    def __init__(self, root: Path, full_at: int) -> None:
        self._root, self._full_at, self.seen, self.hit = root, full_at, 0, ""

    def __call__(self, kind: str, path: Path) -> None:
        what, _, when = kind.partition(":")
        if when == "before" and path.is_relative_to(self._root) and what not in ("unlink", "fsync-folder"):
            self.seen += 1
            if self.seen >= self._full_at:
                self.hit = self.hit or what
                raise OSError(errno.ENOSPC, "No space left on device")


def test_an_upload_at_every_step(url: str, certs: Path, run, http, tmp_path: Path) -> None:
    """Whole or not at all; the same call again, once there is room, ends it."""
    root, link, north = run.path / "server", link_of(url, certs, "north", tries=1), http(url)
    link.upload("north", shard(tmp_path / "first", 3), said())
    steps = set[str]()
    for number in range(1, 40):
        path = shard(tmp_path / "s", 6 + number)
        full = Full(root, number)
        with files.watch(full), suppress(FailingError, BusyError):
            link.upload("north", path, said())
        server_store = ServerStore(root)
        assert server_store.shard("north").rows in (5 + number, 6 + number) or number == 1, full.hit
        server_store.open(server_store.shard("north"))  # what counts is whole
        if not full.hit:
            break
        steps.add(full.hit)
        link.upload("north", path, said())
        assert ServerStore(root).shard("north").rows == 6 + number, full.hit
        assert list((root / "uploads").iterdir()) == [], full.hit
        assert len(list((root / "shards").iterdir())) == 1 and list((root / "incoming").iterdir()) == []
    assert not full.hit and number > 5 and steps >= {"append", "commit", "link"}, (number, steps)
    with files.watch(Full(root, 1)):
        asked = north.post("/v1/requests", json={"ticket": "t1", "level": "class", "commitment": COMMITTED})
        begun = north.post("/v1/uploads", json=announced(shard(tmp_path / "o", 99)))
    for told in (asked, begun):
        assert told.status_code == 507 and told.json()["kind"] == "FailingError" and "no room" in told.text
        assert told.headers["retry-after"] == "30" and str(root) not in told.text
    assert link.tickets("north") == ()
    assert link.submit(Request("t1", "north", "class", COMMITTED)).state == "accepted"


def test_a_piece_that_finds_no_room_can_be_sent_again(url: str, certs: Path, run, http, tmp_path: Path) -> None:
    path, north, root = shard(tmp_path / "s", 50), http(url), run.path / "server"
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"
    sent: list[httpx.Response] = []
    for full in (True, False):
        with files.watch(Full(root, 1 if full else 10**9)):
            offset = north.get(place).json()["offset"]
            rest = path.read_bytes()[offset:]
            sent.append(north.patch(place, content=rest, headers={"Upload-Offset": str(offset)}))
    assert [s.status_code for s in sent] == [507, 200]
    assert link_of(url, certs, "north").upload("north", path, said()).generation == 1  # finds it whole
