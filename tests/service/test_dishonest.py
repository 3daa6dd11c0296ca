"""Servers that lie, over real sockets: details of the checks that notice it.

Whole scenarios, with a process for the server and for each command of the others, are in ``benchmarks/dishonest``;
`tests/test_benchmarks.py` plays three of them, and all under ``soak``.
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

from service.certificate.test_command import call
from service.scene import EPOCHS, Scene, found
from splitwiper.errors import ForkError, MismatchError
from splitwiper.server import Server
from splitwiper.service.api import certificates
from splitwiper.service.certificate import Pins, SigningKey, TreeHead, certify, check, read_public
from splitwiper.service.certificate.issuing import kept_at
from splitwiper.service.records.requests import certified
from splitwiper.service.site.own_key import OwnKey
from splitwiper.service.site.verifying import fingerprint_of, verify_site
from splitwiper.service.verification import verify_both, verify_store
from splitwiper.store import ServerStore, tickets
from splitwiper.wire import Scores, Statement, Ticket, open_shard


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
    receipt = scene.server_store.receipt(ticket)
    assert (
        verify_store(scene.store).exact and verify_both(scene.store, partial(verify_site, scene.north))(receipt).exact
    )


def test_an_old_certificate_for_a_new_ticket(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = scene.forget(), scene.forget()
    assert scene.certificate(first).checked.holds  # late, and still right
    monkeypatch.setattr(
        certificates, "certified", lambda store, cases, _, days: certified(store, cases, first, days=days)
    )
    proof = scene.certificate(second)
    assert found(proof)["asked"] == found(proof)["own request"] == "mismatch"
    assert check(proof.envelope, scene.keys()).holds  # by itself it is a true one: only the requester can tell


def test_a_certificate_signed_by_a_stranger(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = scene.forget()

    def forged(store: ServerStore, cases: Any, which: str, days: float) -> dict[str, Any]:
        kept_at(store, which).unlink(missing_ok=True)
        return certify(store, which, SigningKey(b"x" * 32), request=cases.find(which).signed)

    monkeypatch.setattr(certificates, "certified", forged)
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
    ticket, weights = scene.forget(), ServerStore.weights
    old = {name: tensor + 1.0 for name, tensor in scene.server_store.weights(scene.server_store.model()).items()}
    monkeypatch.setattr(ServerStore, "weights", lambda *_: old)
    assert found(scene.certificate(ticket))["model"] == "mismatch"
    with pytest.raises(MismatchError, match="not the one it commits to"):
        scene.north.predict("north", scene.rows["north"][0], local=True)
    monkeypatch.setattr(ServerStore, "weights", weights)
    # with a fresh commitment to match, it is not in the ledger
    model = ServerStore.model
    monkeypatch.setattr(ServerStore, "model", lambda self: dataclasses.replace(model(self), salt=b"n" * 32))
    with pytest.raises(MismatchError, match="not the newest of its ledger"):
        scene.south.predict("south", scene.rows["south"][0])


def test_a_shard_that_its_site_did_not_sign(scene: Scene) -> None:
    store, record = scene.server_store, scene.server_store.shard("north")
    signed = json.loads(record.signed)
    for altered in ({**signed, "signatures": json.loads(scene.server_store.shard("south").signed)["signatures"]}, None):
        with store.database.change() as db:
            text = json.dumps(altered) if altered else None
            db.execute("UPDATE shards SET signed = ? WHERE client = 'north'", (text,))
        outcomes = {one.what: one.outcome for one in scene.audit().checked.checks}
        assert outcomes["shard of north"] == ("mismatch" if altered else "unverifiable")
        assert outcomes["shard of south"] == "holds" and "server half" not in outcomes


def test_a_site_that_the_server_made_up(scene: Scene) -> None:
    """Registered and signed for by the server itself, with another site's shard: only keys from outside show it."""
    folder, ghost = scene.folder / "keys", SigningKey.generate()
    folder.mkdir()
    for site in (scene.north, scene.south):
        (folder / f"{site.config.name}.pem").write_bytes(site.own_key.public.pem())
    known = {one.what: one.outcome for one in scene.audit(sites="keys").checked.checks}
    assert "sites" not in known and known["server half"] == "exact"
    store, record, salt = scene.server_store, scene.server_store.shard("north"), b"g" * 32
    store.register_key("ghost", ghost.public.raw.hex())
    said = Statement("", "", "", {}, salt=salt.hex())
    own = OwnKey(scene.folder / "nowhere", store.database.meta("run"))
    own.key = lambda: ghost
    signed = json.dumps(own.sign_shard("ghost", record.digest, said, serial=1))
    shutil.copy(scene.store / "shards" / record.file, scene.folder / "copy")
    with store.staging(scene.folder / "copy") as staged:
        store.accept("ghost", staged, open_shard(staged), said, signed=signed)
    scene.train()
    seen = {one.what: (one.outcome, one.detail) for one in scene.audit(sites="keys").checked.checks}
    assert seen["shard of ghost"][0] == "unverifiable" and "no public key of this site" in seen["shard of ghost"][1]
    blind = {one.what: (one.outcome, one.detail) for one in scene.audit().checked.checks}
    assert blind["sites"][0] == "unchecked" and "a site that the server made up would not show" in blind["sites"][1]
    assert blind["server half"][0] == "exact"  # which is why the line above has to be there
    (folder / "ghost.pem").write_bytes(SigningKey.generate().public.pem())
    other = {one.what: (one.outcome, one.detail) for one in scene.audit(sites="keys").checked.checks}
    assert other["shard of ghost"][0] == "mismatch"
    assert "is not the one that the auditor has of this site" in other["shard of ghost"][1]


def test_a_request_that_the_server_lost(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site goes by its own list, so it is not told that nothing is left to do; an honest server is asked again."""
    folder = scene.folder / "north"
    with monkeypatch.context() as lying:
        lost = (tickets.now(), "", "")
        lying.setattr(
            Server, "submit", lambda _, one, **__: Ticket(one.ticket, one.client, one.level, "accepted", *lost)
        )
        for words in (("--class", "cat"), ()):
            said = call("forget", folder, *words, "--patience", "1", code=6).stderr
            assert "the server knows no ticket" in said.replace("\n", " ")
    call("forget", folder, "--patience", "0", code=8)
    scene.train()
    assert "the server certifies" in call("forget", folder, "--patience", "5").stdout.replace("\n", " ")


def test_a_ledger_that_is_not_the_one_of_the_last_audit(scene: Scene) -> None:
    assert scene.audit().checked.exact
    pins = Pins(scene.folder / "audit" / "heads")
    seen = pins.newest()
    assert seen is not None and pins.signed(seen) is not None
    for other, words in ((TreeHead(seen.size + 5, "ab" * 32), "rolled back"), (TreeHead(1, "ab" * 32), "forked")):
        shutil.rmtree(pins.folder)
        pins.keep(other)
        with pytest.raises(ForkError, match=words):
            scene.audit()


def test_without_the_model_the_certificate_says_what_was_not_checked(tmp_path: Path, certs: Path) -> None:
    scene = Scene(tmp_path, certs, hand_out=False)
    proof = scene.certificate(scene.forget())
    assert proof.checked.outcome == "holds"
    assert found(proof)["model"] == found(proof)["predictions"] == "unchecked"
    assert (
        scene.north.predict("north", scene.rows["north"][0][:2]) and "hand its half out" in scene.north.watch.unchecked
    )
    scene.close()
