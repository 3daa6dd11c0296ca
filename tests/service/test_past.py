"""A server that brings the past back: an older model of its own ledger, or a shard that its site signed long ago."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.scene import Scene, found
from splitwiper.errors import CorruptError, ForkError, MismatchError, NotFoundError
from splitwiper.server import Server
from splitwiper.service.api.heads import HeadSigner
from splitwiper.service.certificate import Keyring, Log, SignedHead
from splitwiper.service.certificate.heads import HEAD_HEADER
from splitwiper.service.certificate.signed import ShardStatement
from splitwiper.service.storing import restore
from splitwiper.store import ServerStore, ledger
from splitwiper.wire import Ticket
from splitwiper.wire.commitments import shard_commitment


@pytest.fixture
def scene(tmp_path: Path, certs: Path) -> Iterator[Scene]:
    made = Scene(tmp_path, certs)
    yield made
    made.close()


def answer_as_of_now(scene: Scene, lie: pytest.MonkeyPatch, *, signs: bool = True) -> None:
    """Have the server answer for ever with the model of now, show its entry as the newest, and sign that it is."""
    copied, seq = scene.folder / "copied", Log.of(scene.server_store).newest("model")
    shutil.copytree(scene.store, copied)
    old, model, predict, newest = ServerStore(copied), Server.model, Server.predict, Log.newest

    def of_old(method):  # type: ignore[no-untyped-def]
        return lambda _, *given: method(Server(ServerStore(old.root), scene.halves.server), *given)

    lie.setattr(Server, "model", of_old(model))
    lie.setattr(Server, "predict", of_old(predict))
    commitment = Log.of(scene.server_store).model()
    if signs:
        lie.setattr(Log, "model", lambda *_: commitment)
    lie.setattr(Log, "newest", lambda log, kind, **also: seq if kind == "model" else newest(log, kind, **also))


def test_the_model_from_before_is_refused_though_it_is_in_the_ledger(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = scene.rows["north"][0]
    assert scene.north.predict("north", rows)
    with monkeypatch.context() as lie:
        answer_as_of_now(scene, lie)
        ticket = scene.forget()
        proof = scene.certificate(ticket)
        assert found(proof)["model"] == "mismatch" == found(proof)["predictions"], proof.checked.checks
        for local in (False, True):
            with pytest.raises(MismatchError, match="older model"):
                scene.north.predict("north", rows, local=local)
        assert scene.south.predict("south", scene.rows["south"][0])  # which knows nothing of the request
        (told,) = [one for one in scene.audit().checked.checks if one.what == "model"]
        assert told.outcome == "mismatch" and "signed head" in told.detail
    again = scene.forget()  # an honest server may go on, with models that follow
    assert scene.north.predict("north", rows)
    assert found(scene.certificate(ticket))["model"] == "unchecked"
    assert set(found(scene.certificate(again)).values()) == {"holds"}


def test_who_asked_for_nothing_notices_an_old_model_by_the_signed_head(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as lie:
        answer_as_of_now(scene, lie, signs=False)
        scene.forget()
        for local in (False, True):
            with pytest.raises(MismatchError, match="not the newest of its ledger"):
                scene.south.predict("south", scene.rows["south"][0], local=local)
    assert scene.south.predict("south", scene.rows["south"][0])


def test_two_heads_of_one_ledger_that_name_different_models(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scene.south.predict("south", scene.rows["south"][0])
    key, head = Keyring.of(scene.server_store).key(), Log.of(scene.server_store).head()
    forged = SignedHead.sign(scene.south.guard.federation, head, "2030-01-01", key, model="a" * 64)
    monkeypatch.setattr(
        HeadSigner, "_headers", lambda *_: [(HEAD_HEADER.lower().encode(), forged.to_header().encode())]
    )
    with pytest.raises(ForkError, match="name different models as its newest"):
        scene.south.predict("south", scene.rows["south"][0])


def test_an_auditor_takes_no_shard_from_before_a_settled_request(scene: Scene) -> None:
    """The site signed it once: the signature alone does not show that it still stands."""
    old = scene.server_store.shard("north")
    kept = (scene.store / "shards" / old.file).read_bytes()
    row = tuple(scene.server_store.database.one("SELECT * FROM shards WHERE client = 'north'"))
    scene.forget()
    assert scene.audit().checked.exact
    store = scene.server_store
    with store.database.change() as db:
        db.execute("DELETE FROM shards WHERE client = 'north'")
        db.execute(f"INSERT INTO shards VALUES ({', '.join('?' * len(row))})", row)
        ledger.append(db, {"kind": "shard", "client": "north", "shard": shard_commitment(old.salt, old.digest)})
    (scene.store / "shards" / old.file).write_bytes(kept)
    scene.train()
    told = {one.what: one for one in scene.audit().checked.checks}
    assert (
        told["shard of north"].outcome == "mismatch" and "its site replaced it since" in told["shard of north"].detail
    )
    assert told["shard of south"].outcome == "holds"


def test_a_backup_from_between_a_request_and_its_answer(scene: Scene) -> None:
    """The server has the request then, and not the shard that answered it: it must be answered again."""
    north, backup = scene.north, scene.folder / "backup"
    ticket = north.forget(samples=list(north.client.holdings.ids())[:3])
    north.client.send_requests()
    scene.stop()
    shutil.copytree(scene.store, backup)
    scene.start()
    north.settle(patience=5)
    scene.train()
    assert scene.certificate(ticket).checked.holds
    signed = _serial(scene)
    scene.stop()
    shutil.rmtree(scene.store)
    shutil.copytree(backup, scene.store)
    restore(scene.store, "a broken disk")
    scene.start()
    north.accept_restore(north.restored())
    scene.train()
    assert set(found(scene.certificate(ticket)).values()) == {"holds"}
    assert scene.audit().checked.exact
    assert _serial(scene) > signed  # or what was signed before the restore could be sent again


def _serial(scene: Scene) -> int:
    return ShardStatement.read(json.loads(scene.server_store.shard("north").signed)).serial


def test_no_row_is_erased_on_the_word_of_a_server(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, tickets = list(scene.north.client.holdings.ids()), Server.tickets
    invented = Ticket("ab" * 16, "north", "client", "accepted", "2030-01-01T00:00:00+00:00")
    with monkeypatch.context() as lie:
        lie.setattr(Server, "tickets", lambda self, client: (*tickets(self, client), invented))
        with pytest.raises(CorruptError, match="the server made them up"):
            scene.north.learn(scene.rows["north"])
        with pytest.raises(CorruptError, match="the server made them up"):
            scene.north.settle(patience=5)
    assert list(scene.north.client.holdings.ids()) == rows
    scene.north.learn(scene.rows["north"])


def test_a_server_that_refuses_to_be_checked_only_when_it_lies(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, predict = scene.rows["north"][0], Server.predict
    assert scene.certificate(scene.forget()).checked.holds

    def lie(server: Server, *given: object) -> object:
        told = predict(server, *given)  # type: ignore[arg-type]
        return dataclasses.replace(told, logits=-told.logits)

    def refuse(*_: object) -> object:
        raise NotFoundError("this server does not hand its half out: predict there.")

    monkeypatch.setattr(Server, "predict", lie)
    monkeypatch.setattr(Server, "model", refuse)
    with pytest.raises(MismatchError, match="handed this model out before, and refuses"):
        scene.north.predict("north", rows)
