"""What is accepted of any one client: values, labels, codes, what it says it spent, and room on the disk."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from service.conftest import COMMITTED, announced, plain, said, shard
from service.disks import Disk
from service.serving import link_of, service_over
from splitwiper import Federation, Label
from splitwiper.errors import BusyError, DataError, FailingError, QuotaError
from splitwiper.server import Server
from splitwiper.service.connections.limits import Pacing
from splitwiper.store import ServerStore, ledger, manifest_digest, tickets
from splitwiper.wire import Column, Request, Spent, Statement, write_shard
from splitwiper.wire.transfer import compressed


def labelled(path: Path, labels: list[Label]) -> Path:
    """A shard with one row of each label."""
    file, rows = io.BytesIO(), len(labels)
    block = ({"activation": np.full((rows, 8), 0.5, np.float32)}, np.arange(rows, dtype=np.int32))
    write_shard(file, columns=[Column("activation", "F32", (8,))], rows=rows, labels=labels, blocks=[block])
    path.write_bytes(file.getvalue())
    return path


def numbered(*numbers: int) -> list[Label]:
    return [Label("", number) for number in numbers]


# --- values ------------------------------------------------------------------------------------------------------


def test_values_beyond_the_federations_bound_are_refused(serve, certs: Path, tmp_path: Path) -> None:
    link = link_of(serve(largest_value=100.0), certs, "north", tries=1)
    assert link.largest_value() == 100.0
    link.upload("north", shard(tmp_path / "s", value=99.0), said())
    with pytest.raises(DataError, match=r"client 'north': column 'activation' has the value 101.*up to 100.*standard"):
        link.upload("north", shard(tmp_path / "s", value=-101.0), said())


def test_a_site_notices_before_it_sends(run: Federation, serve, certs: Path, tmp_path: Path) -> None:
    from federation.runs import three
    from splitwiper.client import Client
    from splitwiper.store import ClientStore

    run.learn({"north": three()["north"]})
    link = link_of(serve(largest_value=1e-3), certs, "north", tries=1)
    north = Client(ClientStore(run.path / "clients" / "north"), run.halves.client, run._server.columns, link)
    generation = run._server.store.shard("north").generation
    with pytest.raises(DataError, match=r"client 'north': column 'activation' has the value .*up to 0.001"):
        north.sync(again=True)
    assert run._server.store.shard("north").generation == generation
    assert list((run.path / "server" / "uploads").iterdir()) == []


def test_ordinary_settings_take_what_float16_holds(serve, certs: Path, tmp_path: Path) -> None:
    link = link_of(serve(), certs, "north", tries=1)
    link.upload("north", shard(tmp_path / "s", value=65504.0), said())
    with pytest.raises(DataError, match="up to 65504"):
        link.upload("north", shard(tmp_path / "s", value=65505.0), said())


# --- labels and codes --------------------------------------------------------------------------------------------


def test_labels_of_a_client_and_of_all_are_limited(serve, certs: Path, tmp_path: Path) -> None:
    url = serve(outputs=5, labels=3, label_length=20)
    north, south = (link_of(url, certs, name, tries=1) for name in ("north", "south"))
    with pytest.raises(DataError, match=r"'north' has 4 labels, and 3 of one client.*raise 'labels'"):
        north.upload("north", labelled(tmp_path / "s", numbered(0, 1, 2, 3)), said())
    north.upload("north", labelled(tmp_path / "s", numbered(0, 1, 2)), said())
    south.upload("south", labelled(tmp_path / "s", numbered(2, 3, 4)), said())
    with pytest.raises(DataError, match=r"would have 6, and a model has at most 5 outputs.*raise 'outputs'"):
        north.upload("north", labelled(tmp_path / "s", numbered(0, 1, 5)), said())
    north.upload("north", labelled(tmp_path / "s", numbered(0, 1)), said())
    with pytest.raises(DataError, match=r"a label of 21 characters, and 20 are accepted.*raise 'label_length'"):
        south.upload("south", labelled(tmp_path / "s", [Label("task", "x" * 17)]), said())


def test_rows_of_a_client_are_limited(serve, certs: Path, tmp_path: Path) -> None:
    north = link_of(serve(shard_rows=3), certs, "north", tries=1)
    with pytest.raises(DataError, match=r"'north' has 4 rows, and 3 of one client.*raise 'shard_rows'"):
        north.upload("north", labelled(tmp_path / "s", numbered(0, 1, 2, 3)), said())
    north.upload("north", labelled(tmp_path / "s", numbered(0, 1, 2)), said())


def test_codes_are_limited_before_anything_is_sent(serve, http, tmp_path: Path) -> None:
    north, path = http(serve(outputs=100)), shard(tmp_path / "s")
    plain = announced(path)["statement"]
    told = north.post("/v1/uploads", json=announced(path, statement={**plain, "codebook": "ab" * 16, "outputs": 101}))
    assert told.status_code == 422 and "at most 100 outputs" in told.json()["message"]
    assert (
        north.post(
            "/v1/uploads", json=announced(path, statement={**plain, "codebook": "ab" * 16, "outputs": 100})
        ).status_code
        == 201
    )
    for odd in ("a\r\nb", "group", "AB" * 16, "ab" * 65):
        body = announced(path, statement={**plain, "codebook": odd, "outputs": 2})
        assert north.post("/v1/uploads", json=body).status_code == 422, odd


# --- what clients say they spent ---------------------------------------------------------------------------------


def test_only_answered_requests_of_its_own_are_charged_to_a_client(
    serve, run: Federation, certs: Path, tmp_path
) -> None:
    """West says that it spent a lot on tickets that are another's, or not there: no receipt repeats it."""
    url, server_store = serve(), ServerStore(run.path / "server")
    north, west = (link_of(url, certs, name) for name in ("north", "west"))
    north.upload("north", shard(tmp_path / "n", 9), said())
    west.upload("west", shard(tmp_path / "w", 8), said())
    north.submit(Request("t1", "north", "class", COMMITTED))
    lots = Spent(seconds=86400.0, bytes_up=1 << 50, bytes_down=1 << 50)
    for names in (("does-not-exist",), ("t1",)):
        west.upload("west", shard(tmp_path / "w", 8), Statement("c", "i", "k", {}, names, lots))
    north.upload("north", shard(tmp_path / "n", 7), said("t1"))
    run._server.train()
    receipt = server_store.receipt("t1")
    assert receipt.others == {"contacted": 0, "bytes": 0, "seconds": 0}
    assert north.certificate("t1")["payload"]


@pytest.mark.parametrize("seconds", [float("nan"), -1.0, 1e300, float("inf")])
def test_what_is_charged_stays_within_bounds(run: Federation, tmp_path: Path, seconds: float) -> None:
    server_store = ServerStore(run.path / "server")
    with server_store.database.change() as db:
        for _ in range(3):
            tickets.charge(db, "north", Spent(seconds, bytes_up=1 << 62, bytes_down=-5), 1 << 62)
        row = dict(db.execute("SELECT * FROM spent").fetchone())
    assert 0 <= row["seconds"] <= 1e9 and row["bytes_up"] == 1 << 50 and row["bytes_down"] == 0


# --- shard after shard -------------------------------------------------------------------------------------------


def test_one_client_cannot_make_training_start_over_for_ever(serve, run: Federation, certs: Path, tmp_path) -> None:
    url = serve(shards=2)
    north, west = (link_of(url, certs, name, tries=1) for name in ("north", "west"))
    north.upload("north", shard(tmp_path / "n", 9), said())
    run._server.train()
    rows = itertools.count(10)

    def send(*tickets: str) -> None:
        west.upload("west", shard(tmp_path / "w", next(rows)), said(*tickets))

    for _ in range(4):  # as often as it likes, while nobody waits
        send()
    run._server.train()
    north.submit(Request("t1", "north", "class", COMMITTED))
    north.upload("north", shard(tmp_path / "n", 7), said("t1"))
    for _ in range(2):
        send()
    with pytest.raises(QuotaError, match="sent 2 shards while others wait"):
        send()
    west.submit(Request("w1", "west", "class", COMMITTED))
    with pytest.raises(QuotaError):
        send("t1")
    before = run._server.store.shards()
    with pytest.raises(QuotaError, match="What it asked to forget is forgotten"):  # it may always forget
        send("w1")
    assert [one.client for one in run._server.store.shards()] == ["north"] != [one.client for one in before]
    west.submit(Request("w2", "west", "class", COMMITTED))  # nothing is left to be erased
    assert run._server.store.ticket("w2").state == "settled"
    with pytest.raises(BusyError, match="look at its standing"):
        send("w1")
    for named in ((), ("w2",)):
        with pytest.raises(QuotaError, match="sent 2 shards while others wait"):
            send(*named)
    assert {receipt.ticket for receipt in run._server.train()} == {"t1", "w1"}
    with pytest.raises(BusyError, match="look at its standing"):
        send("w1")  # or it would pass for the answer
    send()
    north.upload("north", shard(tmp_path / "n", 5), said())  # one that learns is not kept waiting for ever either
    send()
    with pytest.raises(QuotaError, match="sent 2 shards while others wait"):
        send()


def test_requests_cannot_make_training_start_over_for_ever(serve, run: Federation, certs: Path, tmp_path) -> None:
    """West asks and answers again and again: training starts over as often as `shards` says, and once for erasing."""
    url, server_store = serve(shards=2), ServerStore(run.path / "server")
    north, west = (link_of(url, certs, name, tries=1) for name in ("north", "west"))
    north.upload("north", shard(tmp_path / "n", 9), said())
    west.upload("west", shard(tmp_path / "w", 9), said())
    run._server.train()
    north.submit(Request("t1", "north", "class", COMMITTED))
    north.upload("north", shard(tmp_path / "n", 7), said("t1"))
    manifests = {manifest_digest(server_store.shards())}
    for number in range(6):
        west.submit(Request(f"w{number}", "west", "class", COMMITTED))
        with suppress(BusyError):
            west.upload("west", shard(tmp_path / "w", 20 + number), said(f"w{number}"))
        manifests.add(manifest_digest(server_store.shards()))
    assert len(manifests) == 1 + 2 + 1
    settled = {ticket.id for ticket in server_store.tickets("west") if ticket.state == "settled"}
    assert settled == {"w3", "w4", "w5"}  # those that found nothing to erase
    assert {receipt.ticket for receipt in run._server.train()} == {"t1", "w0", "w1", "w2"}
    assert [entry["by"] for entry in ledger.entries(server_store.database) if entry.get("by")] == ["pace"]
    assert west.upload("west", shard(tmp_path / "w", 8), said()).generation == 5


def test_what_was_begun_before_a_shard_is_put_off_does_not_come_after_it(
    serve, run: Federation, http, certs: Path, tmp_path: Path
) -> None:
    url = serve(shards=1, unfinished=5)
    north, west = (link_of(url, certs, name, tries=1) for name in ("north", "west"))
    west.upload("west", shard(tmp_path / "w", 8), said())
    place = begun(http(url, "west"), shard(tmp_path / "old", 30))
    north.upload("north", shard(tmp_path / "n", 9), said())
    west.submit(Request("w1", "west", "class", COMMITTED))
    with pytest.raises(QuotaError):
        west.upload("west", shard(tmp_path / "w", 7), said("w1"))
    assert http(url, "west").get(place).status_code == 404


def test_a_client_sends_so_many_shards_a_day_whoever_waits(serve, run: Federation, certs: Path, tmp_path) -> None:
    link = link_of(serve(uploads=3), certs, "north", tries=1)
    for rows in (7, 8, 9):
        link.upload("north", shard(tmp_path / "n", rows), said())
    with pytest.raises(QuotaError, match="sent 3 shards within a day"):
        link.upload("north", shard(tmp_path / "n", 10), said())
    link.submit(Request("t1", "north", "class", COMMITTED))
    assert link.upload("north", shard(tmp_path / "n", 6), said("t1")).generation == 4  # it may always forget
    link_of(link.url, certs, "west", tries=1).upload("west", shard(tmp_path / "w", 9), said())


def test_shards_a_day_come_back_with_time() -> None:
    now = [0.0]
    pacing = Pacing(24, 3, lambda: now[0])
    for _ in range(24):
        pacing.check("north")
        pacing.count("north")
    with pytest.raises(QuotaError, match="24 shards within a day"):
        pacing.check("north")
    now[0] = 3601.0
    pacing.check("north")


def test_an_audit_has_restless_clients_wait_and_not_for_ever() -> None:
    now = [0.0]
    pacing = Pacing(200, 2, lambda: now[0])

    def send() -> None:
        pacing.check("west")
        pacing.count("west")

    send()
    pacing.audit_calls()
    for now[0] in (1.0, 2.0):
        send()
        pacing.audit_calls()
    with pytest.raises(QuotaError, match="while an auditor reads"):
        send()
    pacing.check("north")
    pacing.audit_ends()
    send()
    pacing.audit_calls()
    send()
    now[0] += 4 * 3600 + 1  # an auditor who never ends
    for _ in range(3):
        send()


# --- room on the disk --------------------------------------------------------------------------------------------


def test_uploads_leave_room_for_forgetting(run: Federation, serve, http, certs: Path, tmp_path: Path) -> None:
    """With nothing left but the reserve, only a shard that forgets rows is taken."""
    Server(ServerStore(run.path / "server"), run.halves.server).upload("north", shard(tmp_path / "n", 9), said())
    before, later = http(serve(reserve=0.0)), http(url := serve(reserve=1.0))
    link, path = link_of(url, certs, "north", tries=1), shard(tmp_path / "o", 8)
    begun = before.post("/v1/uploads", json=announced(path)).json()["id"]
    place, headers = f"/v1/uploads/{begun}", {"Upload-Offset": "0"}
    sent = later.patch(place, content=path.read_bytes(), headers=headers)  # others took the room since it was begun
    told = later.post("/v1/uploads", json=announced(shard(tmp_path / "p", 7)))
    for answer in (sent, told):
        assert answer.status_code == 507 and answer.json()["kind"] == "FailingError"
    link.submit(Request("t1", "north", "class", COMMITTED))
    with pytest.raises(FailingError):  # larger than what it replaces
        link.upload("north", shard(tmp_path / "q", 5000), said("t1"))
    assert link.upload("north", path, said("t1")).generation == 2


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MB."""
    disk = Disk(tmp_path / "small", megabytes=64)
    yield disk.folder
    disk.gone()


def begun(caller: httpx.Client, path: Path, *tickets: str) -> str:
    """Begin an upload, and return its address."""
    body = announced(path, statement=plain(said(*tickets)))
    answer = caller.post("/v1/uploads", json=body)
    assert answer.status_code == 201, answer.text
    return f"/v1/uploads/{answer.json()['id']}"


def test_compressed_uploads_stop_at_the_reserve(
    run: Federation, http, certs: Path, small: Path, tmp_path: Path
) -> None:
    """Room is counted in bytes of the file: a few compressed ones would fill the disk otherwise."""
    store = Path(shutil.copytree(run.path / "server", small / "server"))
    path = tmp_path / "zeros"
    path.write_bytes(bytes(22 << 20))
    with service_over(store, run.halves.server, certs, reserve=0.5) as url:
        north, south = http(url), http(url, "south")
        places = [begun(north, path), begun(south, path)]  # either of them fits, both do not
        sent = b"".join(compressed([path.read_bytes()]))
        headers = {"Upload-Offset": "0", "Content-Encoding": "zstd"}

        def send(caller: httpx.Client, place: str) -> int:
            return caller.patch(place, content=sent, headers=headers).status_code

        with ThreadPoolExecutor(2) as both:
            answers = list(both.map(send, (north, south), places))
        assert 507 in answers
        free = os.statvfs(small)
        assert free.f_bavail / free.f_blocks > 0.5 - 17 / 64  # 16 MiB may be written until it is checked again


def test_one_that_forgets_makes_others_give_way(
    run: Federation, http, certs: Path, small: Path, tmp_path: Path
) -> None:
    """Two clients asked; one of them begins, takes the whole reserve and stalls. The other one forgets all the same."""
    store = Path(shutil.copytree(run.path / "server", small / "server"))
    server = Server(ServerStore(store), run.halves.server)
    for name in ("north", "south"):
        server.upload(name, shard(tmp_path / name, 400_000), said())  # 14 MB each
    with service_over(store, run.halves.server, certs, reserve=0.5) as url:
        south = http(url, "south")
        for name, ticket in (("north", "t1"), ("south", "t2")):
            link_of(url, certs, name).submit(Request(ticket, name, "class", COMMITTED))
        stalled = []
        for number in range(2):
            part = shard(tmp_path / f"part{number}", 390_000 + number)
            stalled.append(begun(south, part, "t2"))
            south.patch(stalled[-1], content=part.read_bytes()[:-1], headers={"Upload-Offset": "0"})
        assert south.get(stalled[0]).status_code == 404  # one client has one upload that may use the reserve
        fill(small, but=14 << 20)
        assert south.get(stalled[1]).status_code == 200
        link = link_of(url, certs, "north", tries=1)
        assert link.upload("north", shard(tmp_path / "fewer", 380_000), said("t1")).generation == 2
        assert south.get(stalled[1]).status_code == 404


def test_one_that_forgets_leaves_room_for_others_that_do(
    run: Federation, http, certs: Path, small: Path, tmp_path: Path
) -> None:
    """One that never ends its upload, and sends a few bytes at a time, does not keep others from forgetting."""
    store = Path(shutil.copytree(run.path / "server", small / "server"))
    server = Server(ServerStore(store), run.halves.server)
    server.upload("south", shard(tmp_path / "south", 400_000), said())  # 14 MB
    server.upload("north", shard(tmp_path / "north", 150_000), said())
    fill(small, but=18 << 20)
    stop = threading.Event()

    def dripping(content: bytes) -> Iterator[bytes]:
        yield content[:-1000]
        for place in range(len(content) - 1000, len(content) - 1):
            if stop.wait(0.05):
                return
            yield content[place : place + 1]

    with service_over(store, run.halves.server, certs, reserve=0.5) as url, ThreadPoolExecutor(1) as pool:
        south = http(url, "south")
        for name, ticket in (("north", "t1"), ("south", "t2")):
            link_of(url, certs, name).submit(Request(ticket, name, "class", COMMITTED))
        whole, half = shard(tmp_path / "whole", 390_000), shard(tmp_path / "half", 240_000)
        answer = south.post("/v1/uploads", json=announced(whole, statement=plain(said("t2"))))
        assert answer.status_code == 507
        place = begun(south, half, "t2")
        answers = pool.submit(south.patch, place, content=dripping(half.read_bytes()), headers={"Upload-Offset": "0"})
        try:
            while http(url, "south").get(place).json()["offset"] < 8 << 20:
                assert not answers.done()
            link = link_of(url, certs, "north", tries=1)
            assert link.upload("north", shard(tmp_path / "fewer", 120_000), said("t1")).generation == 2
            assert not answers.done()
        finally:
            stop.set()
            with suppress(httpx.HTTPError):
                answers.result()


def fill(folder: Path, *, but: int) -> None:
    """Fill a disk but for so many bytes."""
    free = os.statvfs(folder)
    (folder / "ballast").write_bytes(bytes(free.f_bavail * free.f_frsize - but))
