"""A server that shows an auditor another ledger than its sites, or brings back a shard that its site replaced."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.scene import Scene
from splitwiper.server import Server, server
from splitwiper.service.audit.source import AuditLink
from splitwiper.service.certificate import check, read_public
from splitwiper.service.certificate.attestation import FIELD, PROOF
from splitwiper.store import ServerTree
from splitwiper.wire import Statement, open_shard


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
    tree = ServerTree(scene.store)
    with tree.book.change() as db:
        db.execute("DELETE FROM model")
    tree.book.close()
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
    old, kept = scene.tree.shard("north"), scene.folder / "kept"
    shutil.copy(scene.store / "shards" / old.file, kept)
    scene.forget()
    assert scene.audit().checked.exact
    tree = scene.tree
    said = Statement("", "", "", {}, salt=old.salt.hex(), codebook=old.codebook, outputs=old.outputs)
    with tree.staging(kept) as staged:
        tree.accept("north", staged, open_shard(staged), said, signed=old.signed)
    tree.book.close()
    scene.train()
    found = scene.audit()
    outcomes = {one.what: (one.outcome, one.detail) for one in found.checked.checks}
    assert outcomes["shard of north"][0] == "mismatch" and "replaced it since" in outcomes["shard of north"][1]
    assert outcomes["shard of south"][0] == "holds" and found.checked.outcome == "mismatch" and found.attested
    assert "server half" not in outcomes and found.received == 0  # nothing of it is downloaded
