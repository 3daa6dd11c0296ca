"""One client cannot stop the others: shards that break training, clients that are evicted, silent or without data."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path

import numpy as np
import pytest

from federation.runs import table
from service.conftest import COMMITTED, said, shard
from service.processes import Running, answers, data, settled, weights
from service.scene import Scene
from service.serving import connected, link_of
from service.test_proof_command import call, call_json
from splitwiper.errors import DataError, ForbiddenError, MismatchError, NotFoundError, TrainingError, WithdrawnError
from splitwiper.service import worker
from splitwiper.service.api import copies, predictions
from splitwiper.service.certificate import Log, check
from splitwiper.service.certificate.signed import ShardStatement
from splitwiper.service.records.client_keys import ClientKeys
from splitwiper.service.records.database import service_database
from splitwiper.service.records.requests import Lapses
from splitwiper.service.records.uploads import Upload, Uploads
from splitwiper.service.site.link import HttpsLink, _File
from splitwiper.service.site.own_key import OwnKey
from splitwiper.service.verification import verify_store
from splitwiper.store import ServerStore, ledger
from splitwiper.wire import Request

REASON = "it sends what nobody can train on"


def waited(server_store: ServerStore, *clients: str) -> None:
    """Wait until the model is that of these clients' shards."""
    end = time.monotonic() + 60
    while not (server_store.is_current() and tuple(s.client for s in server_store.shards()) == clients):
        assert time.monotonic() < end, "the worker did not get there"
        time.sleep(0.05)


def test_a_shard_that_breaks_training_stops_nobody(tmp_path: Path) -> None:
    """A site with a few huge rows joins: the others go on, and it learns why its rows do not count."""
    server, rows, store = Running(tmp_path, more="largest_value = 1e30"), data(), tmp_path / "store"
    try:
        with closing(server.site("north")) as north, closing(server.site("south")) as south:
            north.learn(rows["north"])
            south.learn(rows["south"])
            server_store = settled(store)
            waited(server_store, "north", "south")
            before = weights(store)
            x, y = rows["west"]
            odd = (np.where((y == "eel")[:, None], x * np.float32(1e25), x), y)
            with closing(server.site("west", clip=1e-9, lr=1e-9)) as west:
                west.learn(odd)
                waited(server_store, "north", "south")
                assert weights(store) == before
                ticket = north.forget(classes=["bird"])
                north.settle(patience=30)
                assert north.await_receipt(ticket, patience=60).exact
                assert north.certificate(ticket).checked.holds
                with pytest.raises(TrainingError, match=r"set aside what 'west' sent.*folder here is intact.*forget"):
                    west.learn(odd)
                (removed,) = [e for e in ledger.entries(server_store.database) if e.get("by")]
                assert (removed["client"], removed["by"]) == ("west", "training")
                second = west.forget(classes=["eel"])  # the server holds nothing of it, and says so at once
                west.settle(patience=30)
                receipt = west.await_receipt(second, patience=60)
                assert receipt.before["shard"] is None and receipt.after["shard"] is None
                assert receipt.others == {"contacted": 0, "bytes": 0, "seconds": 0}
                proof = west.certificate(second)
                assert proof.checked.holds, proof.checked.reason
                assert "nothing to erase" in next(c.detail for c in proof.checked.checks if c.what == "changed")
                waited(server_store, "north", "south", "west")  # and what is left counts again
                west.learn((x[y != "eel"], y[y != "eel"]))
    finally:
        server.stop()


@pytest.fixture
def scene(tmp_path: Path, certs: Path) -> Scene:
    made = Scene(tmp_path, certs, withdraw=True)
    yield made
    made.close()


def test_operators_evict_and_admit(scene: Scene, http) -> None:
    ops, south = http(scene.url, "ops", "operators"), scene.south
    before = scene.server_store.model().digest
    body = {"client": "south", "reason": REASON}
    assert http(scene.url, "north").post("/v1/operator/evict", json=body).status_code == 403
    assert ops.post("/v1/operator/evict", json={**body, "reason": "no"}).status_code == 422
    assert ops.post("/v1/operator/evict", json={**body, "client": "nobody"}).status_code == 404
    assert ops.post("/v1/operator/admit", json=body).status_code == 404
    waiting = south.forget(samples=list(south.client.holdings.ids())[:1])
    south.client.send_requests()
    for _ in range(2):  # repeating it changes nothing
        assert ops.post("/v1/operator/evict", json=body).status_code == 204
    assert [s.client for s in scene.server_store.shards()] == ["north"]
    listed = ops.get("/v1/status").json()["clients"]["south"]
    assert (listed["rows"], listed["removed"], listed["evicted"]) == (0, "operator", True)
    scene.train()
    assert scene.server_store.model().digest != before and scene.server_store.ticket(waiting).state == "settled"
    kinds = [e["kind"] for e in ledger.entries(scene.server_store.database) if e.get("client") == "south"]
    assert kinds == ["joined", "shard", "accepted", "evicted", "withdrawn"]
    with pytest.raises(ForbiddenError, match=rf"evicted 'south' \({REASON}\).*folder here are intact"):
        south.learn(scene.rows["south"])
    with pytest.raises(ForbiddenError, match="evicted client 'south'"):
        south.link.upload("south", shard(scene.folder / "s"), said())
    assert south.certificate(waiting).checked.holds
    told = call("forget", south.path, "--class", "cat", code=0)  # it may still ask
    assert "certifies that it held nothing of this site" in told and "Certificate: holds" in told
    assert call_json("forget", south.path)["trouble"].startswith("an operator of the server has evicted 'south'")
    audited = scene.audit().checked
    assert verify_store(scene.store).exact and audited.outcome == "exact"
    assert "south (operator)" in next(one.detail for one in audited.checks if one.what == "removed shards")
    assert ops.post("/v1/operator/admit", json=body).status_code == 204
    south.learn(table(2, ("cat", "dog")))
    scene.train()
    assert [s.client for s in scene.server_store.shards()] == ["north", "south"] and verify_store(scene.store).exact
    assert scene.certificate(scene.forget()).checked.holds
    with closing(service_database(scene.store)) as database:
        told = [tuple(row)[:4] for row in database.read("SELECT * FROM decisions")]
    assert [one[0] for one in told] == ["evict", "evict", "admit"] and all(one[2:] == ("ops", REASON) for one in told)


def test_a_site_believes_no_removal_that_the_ledger_does_not_show(scene: Scene) -> None:
    """A server could say that it erased a shard, and go on training on it: it has to say so in its ledger."""
    link, entry = scene.north.link, ledger.entries(scene.server_store.database)[-1]
    for altered in ({"client": "south"}, {"kind": "shard"}, {"by": "operator"}):
        shown = Log.begin(scene.server_store).proof(entry["seq"])
        told = {"kind": "withdrawn", "client": "north", "by": "training", "why": "so", "seq": entry["seq"], **altered}
        answer = json.dumps({"evicted": "", "removed": {**shown, "entry": told}}).encode()
        scene.lies["/v1/standing"] = lambda _, answer=answer: (200, [answer])
        with pytest.raises(MismatchError, match="cannot show the entry"):
            link.standing("north")
    with pytest.raises(MismatchError):
        scene.north.learn(scene.rows["north"])
    assert scene.north.client.trouble() == "" and scene.north.client.store.shard_commitment()


def test_requests_of_a_client_without_data_stop_nobody(scene: Scene, certs: Path) -> None:
    """West never sent anything: its requests are settled at once, and neither model nor shards are touched."""
    before, rows = scene.server_store.model(), scene.rows["north"][0][:3]
    expected = scene.north.predict("north", rows)
    own = OwnKey(scene.folder, scene.server_store.database.meta("run"))
    west = link_of(scene.url, certs, "west", signer=own)
    west.register("west")
    begun = http_begun(west, scene.folder)
    assert west.submit(Request("t1", "west", "client", COMMITTED)).state == "settled"
    with pytest.raises(NotFoundError):  # what was begun before the request does not become a shard after it
        west._call("GET", f"/v1/uploads/{begun}")
    (listed,) = west._call("GET", "/v1/requests").json()
    assert list(listed["stages"]) == ["received", "accepted", "settled"]  # nothing was erased or retrained
    assert scene.server_store.model() == before and scene.server_store.is_current()
    assert scene.north.predict("north", rows) == expected
    envelope, receipt = west.certificate("t1"), west.receipt("t1")
    checked = check(envelope, scene.keys(), opening=west.opening("t1"), receipt=receipt, client_key=own.public)
    assert checked.holds and receipt.server_seconds == 0
    assert "nothing to erase" in next(one.detail for one in checked.checks if one.what == "changed")
    assert verify_store(scene.store).exact and scene.audit().checked.outcome == "exact"
    assert scene.certificate(scene.forget()).checked.holds  # and others' are as ever


def http_begun(link: HttpsLink, folder: Path, client: str = "west") -> str:
    file = _File(path := shard(folder / "begun"), path.stat().st_size, "ab" * 32)
    return str(link._begun(client, file, dataclasses.replace(said(), salt="00" * 32), nullcontext)["id"])


def test_a_silent_requester_loses_its_shard_and_stops_nobody(tmp_path: Path) -> None:
    """North asks and is never heard of again: what it asked for is more than done, and the others are served."""
    server, rows = Running(tmp_path, more="lapse = 0.0004"), data()
    try:
        with closing(server.site("north")) as north, closing(server.site("south")) as south:
            south.learn(rows["south"])
            north.learn(rows["north"])
            server_store = settled(tmp_path / "store")
            waited(server_store, "north", "south")
            ticket = north.forget(classes=["bird"])
            north.client.send_requests()  # and its machine dies
            waited(server_store, "south")
            assert server_store.ticket(ticket).state == "settled" and answers(south, rows["south"][0][:2])
            (removed,) = [e for e in ledger.entries(server_store.database) if e.get("by")]
            assert (removed["client"], removed["by"]) == ("north", "lapse")
            north.settle(patience=30)  # it is back: what is left is sent
            waited(server_store, "north", "south")
            assert north.certificate(ticket).checked.holds
            assert north.learn(rows["north"]).refused == 10
    finally:
        server.stop()


def test_a_shard_that_is_put_off_is_sent_once_the_model_is_there(tmp_path: Path, certs: Path) -> None:
    """North forgets twice while south waits: the second time its shard goes, and comes back by itself."""
    with closing(Scene(tmp_path, certs, shards=1)) as scene:
        north, south = scene.north, scene.south
        for site in (south, north):
            first = site.forget(samples=list(site.client.holdings.ids())[:1])
            site.settle(patience=5)
        ticket = north.forget(classes=["bird"])
        with ThreadPoolExecutor(1) as background:
            settling = background.submit(north.settle, patience=60)
            end = time.monotonic() + 30
            while ticket not in {one.id for one in scene.server_store.waiting() if one.state == "erased"}:
                assert time.monotonic() < end
                time.sleep(0.05)
            assert [one.client for one in scene.server_store.shards()] == ["south"]
            Lapses(1e-9).expire(scene.server_store)  # nothing is open that could lapse
            scene.train()
            settling.result(60)
        assert not ledger.has_lapsed(scene.server_store.database.db, "north")
        assert [e["by"] for e in ledger.entries(scene.server_store.database) if e.get("by")] == ["pace"]
        assert [one.client for one in scene.server_store.shards()] == ["north", "south"]
        for proved in (north.certificate(first), north.certificate(ticket)):
            assert proved.checked.holds, proved.checked.reason
        scene.train()
        assert north.certificate(ticket).checked.holds and not north.client.trouble()
        assert verify_store(scene.store).exact and scene.audit().checked.outcome == "exact"


def test_a_request_lapses_by_the_clock_that_nobody_sets(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    now, wall = [0.0], time.time
    lapses = Lapses(72.0, lambda: 3600 * now[0])
    ticket = scene.north.forget(samples=list(scene.north.client.holdings.ids())[:1])
    scene.north.client.send_requests()
    lapses.expire(scene.server_store)
    monkeypatch.setattr(time, "time", lambda: wall() + 3600 * 24 * 400)
    for now[0] in (0.0, 71.9):
        lapses.expire(scene.server_store)
        assert scene.server_store.ticket(ticket).state == "accepted"
    now[0] = 72.2
    lapses.expire(scene.server_store)
    assert scene.server_store.ticket(ticket).state == "erased" and scene.server_store.shard("north") is None
    scene.train()
    assert scene.south.predict("south", scene.rows["south"][0][:2])
    scene.north.settle(patience=5)  # it is back, asks once more, and is silent again: others need not wait any more
    scene.train()
    again = scene.north.forget(samples=list(scene.north.client.holdings.ids())[:1])
    scene.north.client.send_requests()
    assert scene.server_store.ticket(again).state == "accepted" and scene.south.link.model("south").labels
    scene.south.forget(samples=list(scene.south.client.holdings.ids())[:1])
    scene.south.client.send_requests()
    with pytest.raises(WithdrawnError, match="1 request is"):  # those of others stop it
        scene.south.link.model("south")


def test_only_the_first_request_of_a_day_stops_the_model_before_it_is_followed_up(scene: Scene) -> None:
    scene.forget()
    assert scene.south.link.model("south").labels
    second = scene.north.forget(samples=list(scene.north.client.holdings.ids())[:1])
    scene.north.client.send_requests()
    assert scene.server_store.ticket(second).state == "accepted" and scene.south.link.model("south").labels
    scene.south.forget(samples=list(scene.south.client.holdings.ids())[:1])
    scene.south.client.send_requests()
    with pytest.raises(WithdrawnError, match="1 request is"):
        scene.south.link.model("south")


def test_nothing_that_was_sent_before_a_lapse_comes_back_after_it(scene: Scene) -> None:
    north, database = scene.north, service_database(scene.store)
    signed = scene.server_store.shard("north").signed
    begun = http_begun(north.link, scene.folder, "north")
    ticket = north.forget(samples=list(north.client.holdings.ids())[:1])
    north.client.send_requests()
    now = [0.0]
    lapses = Lapses(1.0, lambda: now[0])
    lapses.expire(scene.server_store, worker._given_up(scene.store))
    now[0] = 2 * 3600.0
    lapses.expire(scene.server_store, worker._given_up(scene.store))
    assert scene.server_store.ticket(ticket).state == "erased" and ledger.has_lapsed(
        scene.server_store.database.db, "north"
    )
    with pytest.raises(NotFoundError):
        north.link._call("GET", f"/v1/uploads/{begun}")
    with pytest.raises(DataError, match="old one that was sent again"):
        ClientKeys(database).check_serial(ShardStatement.read(json.loads(signed)))
    database.close()


def test_a_request_while_a_shard_is_taken_in_is_not_settled_at_once(
    scene: Scene, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is being checked would become a shard after the request was answered."""
    own = OwnKey(scene.folder, scene.server_store.database.meta("run"))
    west = link_of(scene.url, certs, "west", signer=own)
    west.register("west")
    begun, asked = http_begun(west, scene.folder), list[str]()
    find = Uploads.find

    def asking(uploads: Uploads, client: str, upload: str) -> Upload:
        if client == "west" and not asked:
            asked.append(west.submit(Request("t-meanwhile", "west", "client", COMMITTED)).state)
        return find(uploads, client, upload)

    data = (scene.folder / "begun").read_bytes()
    place = f"/v1/uploads/{begun}"
    west._call("PATCH", place, content=data, headers={"Upload-Offset": "0"})
    monkeypatch.setattr(Uploads, "digest", lambda uploads, upload: asking(uploads, "west", upload.id) and "00" * 32)
    with pytest.raises(DataError):
        west._call("POST", f"{place}/finish", json={"digest": "ab" * 32})
    assert asked == ["accepted"]


def test_a_request_after_a_withdrawal_waits_for_the_model_that_still_knows_the_rows(scene: Scene) -> None:
    north, known = scene.north, scene.server_store.model()
    north.link.withdraw("north", north.client.statement((), coded=False))
    assert scene.server_store.shard("north") is None and scene.server_store.model() == known
    ticket = north.link.submit(Request("t-after", "north", "client", COMMITTED))
    assert (ticket.state, scene.server_store.model()) == ("erased", None)
    scene.train()
    assert (
        scene.server_store.ticket("t-after").state == "settled"
        and scene.server_store.model().manifest != known.manifest
    )
    once_more = north.link.submit(Request("t-nothing", "north", "client", COMMITTED))
    assert once_more.state == "settled" and scene.server_store.is_current()


def test_the_model_is_held_in_memory_once_however_many_read_it(
    scene: Scene, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, write = [], predictions.write_tensors
    monkeypatch.setattr(predictions, "write_tensors", lambda *given, **told: made.append(1) or write(*given, **told))
    monkeypatch.setattr(copies, "_PIECE", 64)
    ask = b"GET /v1/model HTTP/1.1\r\nHost: x\r\n\r\n"
    paused = threading.Event()
    pieces = copies.Copy.pieces

    async def slowly(copy: copies.Copy) -> AsyncIterator[bytes]:
        async for piece in pieces(copy):
            while not paused.is_set():
                await asyncio.sleep(0.01)
            yield piece

    monkeypatch.setattr(copies.Copy, "pieces", slowly)
    with ExitStack() as stack:
        peers = [stack.enter_context(connected(scene.url, certs)) for _ in range(4)]
        for peer in peers:
            peer.sendall(ask)
        end = time.monotonic() + 20
        while scene.calls.count("GET /v1/model") < len(peers):
            assert time.monotonic() < end
            time.sleep(0.01)
        scene.north.link.tickets("north")  # others are answered meanwhile
        paused.set()
        for peer in peers:
            assert peer.recv(16).startswith(b"HTTP/1.1 200")
    assert len(made) == 1
    assert scene.north.link.copy().labels


def test_operators_let_the_model_answer_whatever_one_client_asks(scene: Scene, http) -> None:
    ops, rows = http(scene.url, "ops", "operators"), scene.rows["south"][0][:2]
    scene.north.forget(samples=list(scene.north.client.holdings.ids())[:1])
    scene.north.client.send_requests()
    with pytest.raises(WithdrawnError):
        scene.south.link.model("south")
    keep = {"client": "north", "reason": "it asks every hour and never follows up"}
    assert ops.post("/v1/operator/keep-serving", json={**keep, "ticket": "t1"}).status_code == 422
    assert ops.post("/v1/operator/keep-serving", json={"reason": keep["reason"]}).status_code == 422
    assert ops.post("/v1/operator/keep-serving", json={**keep, "client": "nobody"}).status_code == 404
    assert ops.post("/v1/operator/keep-serving", json={**keep, "hours": 1e-9}).status_code == 201  # over at once
    with pytest.raises(WithdrawnError):
        scene.south.link.model("south")
    assert ops.post("/v1/operator/keep-serving", json=keep).status_code == 201
    scene.north.forget(samples=list(scene.north.client.holdings.ids())[1:2])  # the next one does not stop it either
    scene.north.client.send_requests()
    assert len(scene.south.predict("south", rows)) == 2
    scene.south.forget(samples=list(scene.south.client.holdings.ids())[:1])
    scene.south.client.send_requests()
    with pytest.raises(WithdrawnError, match="1 request is"):  # another client's does
        scene.south.link.model("south")
    listed = ops.get("/v1/operator/overrides").json()
    assert [(one["client"], one["ticket"], one["operator"]) for one in listed] == [("north", "", "ops")] * 2
