"""A server that shows an auditor another ledger than its sites, or brings back a shard that its site replaced."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from service.scene import EPOCHS, Scene
from splitwiper.errors import ConfigError
from splitwiper.server import Server, server
from splitwiper.server.training import TrainedServerHalf, first_state, train_epochs, weights_in
from splitwiper.service.audit.source import AuditLink
from splitwiper.service.certificate import SigningKey, check, read_public
from splitwiper.service.certificate.attestation import FIELD, PROOF
from splitwiper.service.certificate.signed import ShardStatement
from splitwiper.store import ServerStore, ledger
from splitwiper.training.loop import Span
from splitwiper.wire import Statement, open_shard
from splitwiper.wire.commitments import shard_commitment


@pytest.fixture
def scene(tmp_path: Path, certs: Path) -> Iterator[Scene]:
    made = Scene(tmp_path, certs)
    yield made
    made.close()


def retrained(scene: Scene, salt: bytes, state: dict[str, Any] | None = None) -> dict[str, Any]:
    """Train the server half again, with a chosen salt; publish other weights in its place if they are given."""
    kept, compute, drawn = {}, Server.compute, server.secrets.token_bytes

    def lying(self: Server, *given: Any, **how: Any) -> Any:
        trained, labels = compute(self, *given, **how)
        kept.update(state or trained.state)
        return dataclasses.replace(trained, state=dict(kept)), labels

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Server, "compute", lying)
        patch.setattr(server.secrets, "token_bytes", lambda size: salt if size == len(salt) else drawn(size))
        scene.train()
    return kept


def test_a_ledger_without_the_request_for_the_auditor_alone(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model still knows what was forgotten; the auditor is shown a ledger in which nobody asked."""
    salt, real, fork = b"s" * 32, scene.folder / "real", scene.folder / "fork"
    scene.stop()
    shutil.copytree(scene.store, real)
    store = ServerStore(scene.store)
    with store.database.change() as db:
        db.execute("DELETE FROM model")
    store.database.close()
    knowing = retrained(scene, salt)
    shutil.copytree(scene.store, fork)
    shutil.rmtree(scene.store)
    shutil.copytree(real, scene.store)
    scene.start()
    ticket = scene.north.forget(samples=list(scene.north.client.holdings.ids())[:3])
    scene.north.settle(patience=5)
    retrained(scene, salt, knowing)
    honest = scene.certificate(ticket)
    assert honest.checked.holds  # the site cannot tell
    scene.stop()
    shutil.rmtree(real)
    shutil.move(scene.store, real)
    shutil.copytree(fork, scene.store)
    scene.start()
    handed: list[Any] = []
    monkeypatch.setattr(AuditLink, "attest", lambda _, signed: handed.append(signed))
    assert scene.audit().checked.exact  # of the ledger that it was shown
    key = read_public(scene.folder / "audit" / "auditor-key.pub.pem")
    scene.replace_store(real)
    for proof in ({}, {PROOF: []}, {PROOF: ["ab" * 32]}, {PROOF: "x"}):
        told = check({**honest.envelope, FIELD: [{**handed[0], **proof}]}, scene.keys(), attesters=key)
        assert told.outcome in ("holds", "mismatch") and "equal, bit for bit" not in str(told.checks), told.reason


def test_a_shard_that_its_site_signed_for_an_older_request(scene: Scene) -> None:
    """Both are in the ledger, and both carry a good signature: the site salts each anew, so an old one shows."""
    old, kept = scene.server_store.shard("north"), scene.folder / "kept"
    shutil.copy(scene.store / "shards" / old.file, kept)
    scene.forget()
    assert scene.audit().checked.exact
    store = scene.server_store
    said = Statement("", "", "", {}, salt=old.salt.hex(), codebook=old.codebook, outputs=old.outputs)
    with store.staging(kept) as staged:
        store.accept("north", staged, open_shard(staged), said, signed=old.signed)
    store.database.close()
    scene.train()
    found = scene.audit()
    outcomes = {one.what: (one.outcome, one.detail) for one in found.checked.checks}
    assert outcomes["shard of north"][0] == "mismatch" and "replaced it since" in outcomes["shard of north"][1]
    assert outcomes["shard of south"][0] == "holds" and found.checked.outcome == "mismatch" and found.attested
    assert "server half" not in outcomes and found.received == 0  # nothing of it is downloaded


Alter = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]


def forged(scene: Scene, alter: Alter, *epochs: int) -> None:
    """Train again, altering the states after some epochs; the transcript and the ledger say what was done."""

    def compute(self: Server, shards: Any, *, on_state: Any, **_: Any) -> Any:
        inputs = self.inputs(shards)
        states = [first_state(inputs)]
        shown = [alter(states[0]) if 0 in epochs else states[0]]
        for epoch in range(1, EPOCHS + 1):
            states.append(train_epochs(inputs, Span(epoch - 1, epoch, states[-1])))
            shown.append(alter(states[-1]) if epoch in epochs else states[-1])
        for epoch, state in enumerate(shown):
            on_state(epoch, state)
        return TrainedServerHalf(weights_in(inputs, states[-1]), (0.0,) * EPOCHS), tuple(inputs.labels)

    store = ServerStore(scene.store)
    with store.database.change() as db:
        db.execute("DELETE FROM model")
    store.database.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Server, "compute", compute)
        scene.train()


@pytest.mark.parametrize(
    ("alter", "epochs", "told"),
    [
        (lambda state: {name: t + 1 for name, t in state.items()}, (0,), "state before the first epoch differs"),
        (lambda state: {name: t + 1 for name, t in state.items()}, (2,), "recomputed state differs"),
        (lambda state: {name: t * torch.nan for name, t in state.items()}, (2,), "recomputed state differs"),
        (lambda state: {name: t.reshape(-1)[:1] for name, t in state.items()}, (1, 2, 3), "differs|nobody can train"),
        (lambda state: {}, (EPOCHS,), "no state of this half"),
        (lambda state: {**state, "more": torch.ones(9)}, (EPOCHS,), "no state of this half|differs"),
    ],
)
def test_a_transcript_that_is_consistent_and_false(scene: Scene, alter: Alter, epochs: Any, told: str) -> None:
    """Digests, root and ledger agree with each other: recomputing alone can tell."""
    forged(scene, alter, *epochs)
    found = scene.audit(epochs=EPOCHS)
    assert found.checked.outcome == "mismatch" and found.attested
    assert re.search(told, found.checked.reason), found.checked.reason
    whole = scene.audit()  # nobody needs the transcript for this: the model itself is right
    assert whole.checked.exact


def test_a_shard_signed_with_a_key_that_the_server_made_for_a_site(scene: Scene) -> None:
    """The ledger shows it; that the key is not the site's takes the site's own word."""
    store, own, salt = scene.server_store, SigningKey.generate(), b"n" * 32
    record = store.shard("south")
    run = store.database.meta("run")
    with store.database.change() as db:
        ledger.append(db, {"kind": "key-dropped", "client": "north", "operator": "ops", "reason": "lost"})
        ledger.append(db, {"kind": "joined", "client": "north", "key": own.public.raw.hex()})
    committed = shard_commitment(salt, record.digest)
    said = ShardStatement(run, "north", 99, record.digest, committed, "", 0, (), "now", own.public.raw.hex())
    kept = shutil.copy(scene.store / "shards" / record.file, scene.folder / "kept")
    with store.staging(kept) as staged:
        statement = Statement("", "", "", {}, salt=salt.hex())
        store.accept("north", staged, open_shard(staged), statement, signed=json.dumps(said.sign(own)))
    store.database.close()
    scene.train()
    found = scene.audit()
    assert found.checked.exact and "the operator dropped the key before it" in str(found.checked.checks)
    keys = scene.folder / "keys"
    keys.mkdir()
    (keys / "south.pem").write_bytes(scene.south.own_key.public.pem())
    outcomes = {one.what: one.outcome for one in scene.audit(sites="keys").checked.checks}
    assert outcomes["shard of north"] == "unverifiable" and outcomes["shard of south"] == "holds"
    (keys / "north.pem").write_bytes(scene.north.own_key.public.pem())
    found = scene.audit(sites="keys")
    assert found.checked.outcome == "mismatch" and found.attested
    assert "is not the one that the auditor has of this site" in found.checked.reason
    with pytest.raises(ConfigError, match="has no public keys"):
        scene.audit(sites="nowhere")
