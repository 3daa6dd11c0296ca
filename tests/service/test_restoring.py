"""A server whose ledger was rolled back is told nothing more; one that was restored, and says so, can be accepted."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from service.certificate.test_command import call, call_json
from service.processes import Running, answers, data, settled, weights
from service.scene import Scene
from service.serving import link_of, service_over
from splitwiper.cli.exit_codes import exit_code
from splitwiper.errors import BusyError, ForkError, FormatError, NotFoundError, RestoredError
from splitwiper.service.calls.guard import LedgerGuard
from splitwiper.service.certificate import Envelope, Keyring, Keys, SignedHead, SigningKey
from splitwiper.service.certificate.restoring import read_restored, record
from splitwiper.service.site import Site
from splitwiper.service.storing import restore
from splitwiper.service.verification import verify_store
from splitwiper.store import ServerStore, ledger


def forgets(site: Site, name: str) -> str:
    ticket = site.forget(classes=[name])
    site.settle(patience=30)
    site.await_receipt(ticket, patience=60)
    return ticket


def test_a_backup_in_place_of_the_store(tmp_path: Path, certs: Path) -> None:
    """Without a word it is a fork; on record, a person at each site that knows more can accept it."""
    scene = Scene(tmp_path, certs)
    north, x, backup = scene.north, scene.rows["north"][0][:3], tmp_path / "backup"
    shutil.copytree(scene.store, backup)
    ticket = scene.forget()
    forgotten = weights(scene.store)
    assert scene.certificate(ticket).checked.holds
    scene.replace_store(backup)
    del scene.calls[:]
    for use in (
        lambda: north.learn(scene.rows["north"]),
        lambda: north.settle(patience=0),
        lambda: north.certificate(ticket),
    ):
        with pytest.raises(ForkError, match="rolled back") as problem:
            use()
        assert not isinstance(problem.value, RestoredError)
    assert scene.calls and all(one.startswith("GET /v1/") for one in scene.calls), scene.calls
    scene.stop()
    restore(scene.store, "the disk failed")
    scene.start()
    with pytest.raises(RestoredError, match="the disk failed"):
        north.predict("north", x)
    scene.south.predict("south", x)  # what it has pinned is in the backup
    call("accept-restore", tmp_path / "north", "--yes")
    scene.train()
    assert north.await_receipt(ticket, patience=5).exact and weights(scene.store) == forgotten
    assert scene.certificate(ticket).checked.holds
    assert verify_store(scene.store).exact
    with pytest.raises(NotFoundError, match="nothing to accept"):
        north.restored()
    scene.close()


@pytest.mark.soak
def test_rolled_back_and_restored(server: Running, tmp_path: Path) -> None:
    rows, store = data(), tmp_path / "store"
    for name in ("south", "north"):
        with closing(server.site(name)) as site:
            site.learn(rows[name])
    settled(store)
    backup = server.backup(tmp_path / "backup")
    with closing(server.site("north")) as north:
        ticket = forgets(north, "bird")
        assert north.certificate(ticket).checked.holds
        forgotten, x = weights(settled(store).root), rows["north"][0]
        assert "bird" not in answers(north, x)

        server.replace_store(backup)  # without a word
        before = len(server.calls())
        more = (rows["north"][0] + 1, rows["north"][1])
        for use in (
            lambda: north.predict("north", x),
            lambda: north.predict("north", x, local=True),
            lambda: north.settle(patience=0),
            lambda: north.learn(more),
            north.restored,
        ):
            with pytest.raises(ForkError, match="rolled back") as problem:
                use()
            assert exit_code(problem.value) == 3
        told = server.calls()[before:]
        assert told and all(one.startswith("GET /v1/") for one in told), told
        with pytest.raises(BusyError, match="in use by"):
            restore(store, "while it is served")

        server.stop()
        entries = len(ledger.entries(ServerStore(store).database))
        said = call_json("restore", store, "--reason", "the disk failed")["restored"]
        assert said["size"] == entries and said["reason"] == "the disk failed"
        server.start()
        with pytest.raises(RestoredError, match="accept-restore") as problem:
            north.predict("north", x)
        assert "the disk failed" in str(problem.value) and exit_code(problem.value) == 11
    with closing(server.site("south")) as south:  # its pins are older than the backup
        assert answers(south, rows["south"][0][:3])
        with pytest.raises(NotFoundError, match="nothing to accept"):
            south.restored()
    folder = tmp_path / "sites" / "north"
    heads = {path.name for path in (folder / "north" / "heads").glob("*.json")}
    assert "add --yes" in call("accept-restore", folder, code=2).stderr
    evidence = Path(call_json("accept-restore", folder, "--yes")["evidence"])
    assert {path.name for path in evidence.iterdir()} == heads
    with closing(server.site("north")) as north:
        north.await_receipt(ticket, patience=60)
        assert "bird" not in answers(north, x) and weights(settled(store).root) == forgotten
        assert north.certificate(ticket).checked.holds
        with pytest.raises(NotFoundError, match="nothing to accept"):
            north.restored()
    assert "restored" in {entry["kind"] for entry in ledger.entries(ServerStore(store).database)}


def grow(store: Path, entries: int, client: str = "nobody") -> None:
    server_store = ServerStore(store)
    with server_store.database.change() as db:
        for _ in range(entries):
            ledger.append(db, {"kind": "shard", "client": client})
    server_store.database.close()


def test_what_an_entry_explains(serve, run, certs: Path, tmp_path: Path) -> None:
    """A fork from before a site's pins is not excused by a backup that had more; one restored twice is."""
    store = run.path / "server"
    guard = LedgerGuard(tmp_path / "north", ServerStore(store).database.meta("run"), tmp_path)
    url = serve()
    link_of(url, certs, "north", guard=guard).head()  # from here on there is a key
    for name in ("forked", "once"):
        shutil.copytree(store, tmp_path / name)
    for _ in range(2):
        grow(store, 2)
        link_of(url, certs, "north", guard=guard).head()
    before = guard.pins.newest()
    grow(tmp_path / "forked", 4, "somebody")
    restore(tmp_path / "forked", "nothing to see here")  # it had as many entries as the pin, and other ones
    with service_over(tmp_path / "forked", run.halves.server, certs) as other:
        with pytest.raises(ForkError, match="forked") as problem:
            link_of(other, certs, "north", guard=guard).head()
        assert not isinstance(problem.value, RestoredError)
        (evidence,) = tmp_path.glob("evidence-*.json")  # both heads of that size are signed by the server
        assert str(evidence) in str(problem.value) and guard.pins.newest() == before
    restore(tmp_path / "once", "a broken disk")
    grow(tmp_path / "once", 1)
    shutil.copytree(tmp_path / "once", tmp_path / "twice")
    restore(tmp_path / "twice", "another broken disk")
    grow(tmp_path / "twice", 9)
    with service_over(tmp_path / "twice", run.halves.server, certs) as other:
        link = link_of(other, certs, "north", guard=guard)
        with pytest.raises(RestoredError, match="a broken disk"):  # the first is from where on all may be back
            link.tickets("north")
        found = guard.restored(link.ask)
        kept = guard.accept(found, link.ask)
        assert len(list(kept.iterdir())) == 3 and guard.pins.newest() == link.head().head
        link.tickets("north")
        assert guard.restored(link.ask) is None
    with service_over(tmp_path / "once", run.halves.server, certs) as other:
        with pytest.raises(ForkError, match="rolled back") as problem:  # that was accepted long ago
            link_of(other, certs, "north", guard=guard).head()
        assert not isinstance(problem.value, RestoredError)


def test_an_entry_that_is_not_signed_or_not_in_the_ledger(serve, run, certs: Path, tmp_path: Path) -> None:
    store = run.path / "server"
    server_store = ServerStore(store)
    link = link_of(serve(), certs, "north")
    link.head()
    record(server_store, "a broken disk")
    told = link.ask("/v1/ledger/restorations")
    (one,), head, keys = told["restorations"], SignedHead.read(told["signed"]).head, Keyring.of(server_store).keys()
    assert read_restored(one, head, keys).reason == "a broken disk"
    entry = one["entry"]
    stranger = Envelope.sign(b"{}", [SigningKey.generate()], payload_type="x").to_dict()
    for odd in (
        {**one, "entry": {**entry, "from": 0}},
        {**one, "entry": {**entry, "statement": {**entry["statement"], "signatures": stranger["signatures"]}}},
        {**one, "entry": {**entry, "statement": stranger}},
        {**one, "entry": {**entry, "seq": 1}},
        {**one, "entry": {**entry, "kind": "shard"}},
        {**one, "proof": one["proof"][1:]},
        {**one, "blind": "00" * 32},
        {**one, "blind": "nonsense"},
        {},
    ):
        with pytest.raises(FormatError):
            read_restored(odd, head, keys)
    with pytest.raises(FormatError, match="good standing"):
        read_restored(one, head, Keys((SigningKey.generate().public,)))


def test_reasons(tmp_path: Path) -> None:
    assert "one line" in call("restore", tmp_path, "--reason", " ", code=2).stderr
    assert "no server's store" in call("restore", tmp_path, "--reason", "a disk", code=6).stderr.replace("\n", " ")
