"""Servers that lie, over real sockets: who notices, and by which check.

==========================================  ===========================  =========================================
what the server does                        who notices                  by which finding
==========================================  ===========================  =========================================
keeps shard and model, says it is settled   the site, and any outsider   "shard after", "changed"
hands out an old certificate again          the site                     "asked", "own request"
signs with a key that nobody knows          the site, and any outsider   "signature"
certifies one model, answers with another   the site, when it predicts   `MismatchError`
hands out another model                     the site                     "model", `MismatchError`
trains on rows that were withdrawn          an auditor                   "server half"
puts a shard in that no site signed         an auditor                   "shard of …"
forges some epochs of a transcript          an auditor that draws them   "server half"
shows another ledger than the last time     site, auditor                `ForkError`
keeps a copy and uses it for nothing        nobody                       –
==========================================  ===========================  =========================================
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from service.scene import EPOCHS, Scene, found
from splitwiper.errors import ForkError, MismatchError
from splitwiper.server import Server
from splitwiper.service.api import proving
from splitwiper.service.certificate import Head, Pins, SigningKey, certify, check, read_public
from splitwiper.service.certificate.issuing import kept_at
from splitwiper.service.certifying import certified
from splitwiper.service.home.verifying import fingerprint_of, verify_site
from splitwiper.service.verifying import verify_both, verify_store
from splitwiper.store import ServerTree, tickets
from splitwiper.wire import Scores, open_shard


@pytest.fixture
def scene(tmp_path: Path, certs: Path) -> Iterator[Scene]:
    made = Scene(tmp_path, certs)
    yield made
    made.close()


def test_an_honest_server_passes_every_check_and_becomes_exact_once_recomputed(scene: Scene) -> None:
    ticket = scene.forget()
    proof = scene.certificate(ticket)
    outcomes = found(proof)
    assert set(outcomes.values()) == {"holds"}, proof.checked.reason
    wanted = {"asked", "own request", "shard before", "shard after", "changed", "receipt", "model", "predictions"}
    assert wanted <= outcomes.keys() and "not recomputed by anybody yet" in proof.checked.reason
    # the site recomputes its half and shard, an auditor the server half: only then it is exact
    assert verify_site(scene.north).exact
    scene.north.attest("exact", fingerprint_of(scene.north))
    partly = scene.certificate(ticket).checked
    assert partly.outcome == "holds" and "not recomputed yet: the server half" in partly.reason
    sampled = scene.audit(epochs=1)
    assert sampled.checked.outcome == "holds" and f"1 of {EPOCHS} epochs" in sampled.checked.reason
    assert sampled.caught(1) == 1 / EPOCHS and sampled.caught(EPOCHS) == 1.0
    key = read_public(scene.folder / "audit" / "auditor-key.pub.pem")
    own = scene.north.own_key.public
    envelope = scene.certificate(ticket).envelope
    told = check(envelope, scene.keys(), attesters=[own, *key])
    assert told.outcome == "holds" and f"1 of {EPOCHS} epochs" in told.reason
    whole = scene.audit()
    assert whole.checked.exact and whole.attested and whole.epochs == tuple(range(1, EPOCHS + 1))
    assert not (scene.folder / "audit" / "downloads").exists() and whole.received > 0
    envelope = scene.certificate(ticket).envelope
    assert check(envelope, scene.keys(), attesters=[own, *key]).exact
    for trusted in ([], [own], key, [SigningKey(bytes(32)).public]):  # keys that are not given do not count
        assert check(envelope, scene.keys(), attesters=trusted).outcome == "holds"
    # whoever has both folders needs nobody
    receipt = scene.tree.receipt(ticket)
    assert (
        verify_store(scene.store).exact and verify_both(scene.store, partial(verify_site, scene.north))(receipt).exact
    )


def test_a_server_that_does_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def ignore(self: ServerTree, client: str, staged: Path, shard: Any, statement: Any, **how: Any) -> Any:
        with self.book.change() as db:
            tickets.answer(db, client, statement, statement.tickets, warm=True)
        return dataclasses.replace(self.shard(client), digest=how["digest"])

    monkeypatch.setattr(ServerTree, "accept", ignore)
    proof = scene.certificate(scene.forget())
    outcomes = found(proof)
    assert outcomes["shard after"] == outcomes["changed"] == "mismatch" and proof.checked.outcome == "mismatch"
    offline = check(proof.envelope, scene.keys())
    assert offline.outcome == "mismatch" and "nothing was forgotten" in offline.reason


def test_an_old_certificate_for_a_new_ticket(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = scene.forget(), scene.forget()
    assert scene.certificate(first).checked.holds  # late, and still right
    monkeypatch.setattr(proving, "certified", lambda tree, cases, _, days: certified(tree, cases, first, days=days))
    proof = scene.certificate(second)
    assert found(proof)["asked"] == found(proof)["own request"] == "mismatch"
    assert check(proof.envelope, scene.keys()).holds  # by itself it is a true one: only the requester can tell


def test_a_certificate_signed_by_a_stranger(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = scene.forget()

    def forged(tree: ServerTree, cases: Any, which: str, days: float) -> dict[str, Any]:
        kept_at(tree, which).unlink(missing_ok=True)
        return certify(tree, which, SigningKey(b"x" * 32), request=cases.find(which).signed)

    monkeypatch.setattr(proving, "certified", forged)
    proof = scene.certificate(ticket)
    assert found(proof) == {"signature": "mismatch"} and proof.checked.outcome == "mismatch"


def flipped(scores: Scores) -> Scores:
    return dataclasses.replace(scores, logits=-scores.logits)


def test_one_model_certified_another_in_use(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    proof = scene.certificate(scene.forget())
    assert proof.checked.holds and scene.north.predict("north", scene.rows["north"][0])
    answer = Server.predict
    monkeypatch.setattr(Server, "predict", lambda self, *given: flipped(answer(self, *given)))
    with pytest.raises(MismatchError, match="not that of the model it commits to"):
        scene.north.predict("north", scene.rows["north"][0])
    assert found(scene.certificate(proof.checked.certificate["ticket"]))["predictions"] == "mismatch"


def test_another_model_is_handed_out(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket, weights = scene.forget(), ServerTree.weights
    old = {name: tensor + 1.0 for name, tensor in scene.tree.weights(scene.tree.model()).items()}
    monkeypatch.setattr(ServerTree, "weights", lambda *_: old)
    assert found(scene.certificate(ticket))["model"] == "mismatch"
    with pytest.raises(MismatchError, match="not the one it commits to"):
        scene.north.predict("north", scene.rows["north"][0], at_home=True)
    monkeypatch.setattr(ServerTree, "weights", weights)
    # with a fresh commitment to match, it is not in the ledger
    model = ServerTree.model
    monkeypatch.setattr(ServerTree, "model", lambda self: dataclasses.replace(model(self), salt=b"n" * 32))
    with pytest.raises(MismatchError, match="not the newest of its ledger"):
        scene.south.predict("south", scene.rows["south"][0])


def test_a_server_that_trains_on_what_was_withdrawn(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = scene.folder / "kept"
    shutil.copy(scene.store / "shards" / scene.tree.shard("north").file, kept)
    with monkeypatch.context() as lying:
        honest = Server._open
        lying.setattr(
            Server,
            "_open",
            lambda self, records: [
                open_shard(kept) if record.client == "north" else shard
                for record, shard in zip(records, honest(self, records), strict=True)
            ],
        )
        ticket = scene.forget()
    assert scene.certificate(ticket).checked.holds  # the site cannot tell
    whole = scene.audit()
    assert whole.checked.outcome == "mismatch" and whole.checked.checks[-1].what == "server half"
    assert scene.audit(epochs=EPOCHS).checked.outcome == "mismatch"
    told = check(
        scene.certificate(ticket).envelope,
        scene.keys(),
        attesters=read_public(scene.folder / "audit" / "auditor-key.pub.pem"),
    )
    assert told.outcome == "mismatch" and "recomputed, and different" in told.reason


def test_a_shard_that_its_site_did_not_sign(scene: Scene) -> None:
    tree, record = scene.tree, scene.tree.shard("north")
    signed = json.loads(record.signed)
    for altered in ({**signed, "signatures": json.loads(scene.tree.shard("south").signed)["signatures"]}, None):
        with tree.book.change() as db:
            text = json.dumps(altered) if altered else None
            db.execute("UPDATE shards SET signed = ? WHERE client = 'north'", (text,))
        outcomes = {one.what: one.outcome for one in scene.audit().checked.checks}
        assert outcomes["shard of north"] == ("mismatch" if altered else "unverifiable")
        assert outcomes["shard of south"] == "holds" and "server half" not in outcomes


def test_a_ledger_that_is_not_the_one_of_the_last_audit(scene: Scene) -> None:
    assert scene.audit().checked.exact
    pins = Pins(scene.folder / "audit" / "heads")
    seen = pins.newest()
    assert seen is not None and pins.signed(seen) is not None
    for other, words in ((Head(seen.size + 5, "ab" * 32), "rolled back"), (Head(1, "ab" * 32), "forked")):
        shutil.rmtree(pins.folder)
        pins.keep(other)
        with pytest.raises(ForkError, match=words):
            scene.audit()


def test_a_copy_that_is_used_for_nothing_is_noticed_by_nobody(scene: Scene) -> None:
    """No protocol can show this: THREAT_MODEL.md says so."""
    shutil.copytree(scene.store / "shards", scene.folder / "kept")
    ticket = scene.forget()
    assert scene.certificate(ticket).checked.holds and scene.audit().checked.exact


def test_without_the_model_the_certificate_says_what_was_not_checked(tmp_path: Path, certs: Path) -> None:
    scene = Scene(tmp_path, certs, hand_out=False)
    proof = scene.certificate(scene.forget())
    assert proof.checked.outcome == "holds"
    assert found(proof)["model"] == found(proof)["predictions"] == "unchecked"
    assert (
        scene.north.predict("north", scene.rows["north"][0][:2]) and "hand its half out" in scene.north.watch.unchecked
    )
    scene.close()
