"""Sites countersign heads and compare those of others: a server that keeps two ledgers is found out, with proof."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.certificate.test_command import call, call_json
from service.conftest import said, shard
from service.processes import Running, data, settled
from service.serving import link_of, service_over
from splitwiper.errors import DataError, ForbiddenError, ForkError
from splitwiper.service.calls.guard import LedgerGuard
from splitwiper.service.certificate import Keyring, SignedHead, SigningKey
from splitwiper.service.certificate.heads import countersign, read_countersigned
from splitwiper.service.certificate.log import TreeHead
from splitwiper.service.identity import client_context
from splitwiper.service.site import Site
from splitwiper.service.site.own_key import OwnKey
from splitwiper.service.site.witnessing import Witnessing
from splitwiper.store import ServerStore


def rows_of(service: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(service / "service.db")) as db:
        return db.execute("SELECT * FROM witnesses").fetchall()


class Peer:
    """A site without rows: its pins, its key, and its link to one of several servers."""

    def __init__(self, folder: Path, name: str, federation: str) -> None:
        self.name, self.folder = name, folder / name
        self.folder.mkdir()
        self.guard = LedgerGuard(self.folder, federation, self.folder)
        self.own_key = OwnKey(self.folder, federation)

    def at(self, url: str, certs: Path) -> Witnessing:
        self.link = link_of(url, certs, self.name, guard=self.guard, tries=1)
        return Witnessing(self.folder, self.name, self.guard, self.link, self.own_key)


def test_a_fork_between_two_sites(serve, run, certs: Path, tmp_path: Path) -> None:
    store, fork = run.path / "server", tmp_path / "fork"
    federation = ServerStore(store).database.meta("run")
    north, south = (Peer(tmp_path, name, federation) for name in ("north", "south"))
    url = serve()
    for site in (north, south):
        site.at(url, certs).exchange()
    shutil.copytree(store, fork)
    at_north = north.at(url, certs)
    north.link.upload("north", shard(tmp_path / "n"), said())
    at_north.exchange()
    relayed = [row for row in rows_of(store) if row[0] == "north"]
    with service_over(fork, run.halves.server, certs) as other:  # what south is shown
        at_south = south.at(other, certs)
        for value in (0.1, 0.2, 0.3):
            south.link.upload("south", shard(tmp_path / "s", value=value), said())
        at_south.exchange()  # the server keeps north's newest head back: nothing is noticed
        assert at_south.seen()["north"].size < max(row[1] for row in relayed)
        with closing(sqlite3.connect(fork / "service.db")) as db, db:  # until it makes a mistake
            db.executemany("INSERT OR REPLACE INTO witnesses VALUES (?, ?, ?, ?, ?, ?)", relayed)
        with pytest.raises(ForkError, match="keeps two ledgers: site 'north'") as problem:
            at_south.try_exchange()
        (evidence,) = south.folder.glob("evidence-*.json")
        assert str(evidence) in str(problem.value)
        keys = south.folder / "server-keys"
        assert "the server signed two ledgers" in call_json("verify", evidence, "--key", keys, code=3)["reason"]
        stranger = tmp_path / "other.pem"
        stranger.write_bytes(SigningKey.generate().public.pem())
        call("verify", evidence, "--key", stranger, code=5)
        # the same without the server's help: north hands its head over
        evidence.unlink()
        with pytest.raises(ForkError, match="whoever wrote it"):
            at_south.compare(at_north.newest(), whose="whoever wrote it")
        assert list(south.folder.glob("evidence-*.json"))
        # and north is not taken in either
        with pytest.raises(ForkError, match="forked"):
            north.at(other, certs).exchange()
        assert list(north.folder.glob("evidence-*.json"))


def test_a_head_that_is_larger_than_the_ledger(serve, run, certs: Path, tmp_path: Path) -> None:
    """The server signed more for another site than it shows to this one."""
    server_store = ServerStore(run.path / "server")
    south = Peer(tmp_path, "south", server_store.database.meta("run"))
    at_south = south.at(serve(), certs)
    at_south.exchange()
    key, size = Keyring.of(server_store).key(), south.guard.pins.newest().size
    more = SignedHead.sign(south.guard.federation, TreeHead(size + 4, "a" * 64), "2030-01-01", key)
    with pytest.raises(ForkError, match="two ledgers"):
        at_south.compare(more, whose="west")
    for odd, words in (
        (SignedHead.sign("elsewhere", south.guard.pins.newest(), "t", key), "another federation"),
        (SignedHead.sign(south.guard.federation, TreeHead(1, "a" * 64), "t", SigningKey.generate()), "by no key"),
    ):
        with pytest.raises(ForkError, match=words):
            at_south.compare(odd, whose="west")
    at_south.compare(south.link.head(1), whose="west")  # an earlier one is fine


def test_sites_that_see_one_ledger(server: Running, tmp_path: Path) -> None:
    rows, sites = data(), tmp_path / "sites"
    with closing(server.site("north")) as north, closing(server.site("south")) as south:
        north.learn(rows["north"])
        south.learn(rows["south"])
        assert set(south.witnessing.seen()) == {"north"} and not north.witnessing.seen()
        before = len(server.calls())
        settled(tmp_path / "store")
        for _ in range(3):
            north.predict("north", rows["north"][0][:2])
        calls = server.calls()[before:]
        assert "POST /v1/ledger/witnesses" not in calls, "joining was less than a day ago"
        north.witnessing._path.unlink()
        for _ in range(3):
            north.predict("north", rows["north"][0][:2])
        assert server.calls()[before:].count("POST /v1/ledger/witnesses") == 1
        assert set(north.witnessing.seen()) == {"south"}
        _refused(north, south)
        _changed_key(north, south, server)
    call("head", sites / "north", "--out", tmp_path / "n.json")
    assert "same ledger" in call("head", sites / "south", "--compare", tmp_path / "n.json").stdout.replace("\n", " ")
    assert call_json("head", sites / "south")["sites"]["north"]["note"] == ""
    key, known = Keyring(tmp_path / "store" / "signing").key(), json.loads((tmp_path / "n.json").read_bytes())
    own = SignedHead.read(known)
    forked = SignedHead.sign(own.federation, TreeHead(own.head.size, "a" * 64), own.time, key)
    (tmp_path / "fork.json").write_text(json.dumps(forked.envelope.to_dict()), encoding="utf-8")
    told = call("head", sites / "south", "--compare", tmp_path / "fork.json", code=3).stderr.replace("\n", "")
    (evidence,) = (sites / "south").glob("evidence-*.json")
    assert evidence.name in told


def _refused(north: Site, south: Site) -> None:
    """What the server does not take, and what a site does not believe."""
    head, key = north.witnessing.newest(), north.own_key.key()
    earlier = north.link.head(1)
    for made, kind in (
        (countersign(head, "south", south.own_key.key(), "t"), ForbiddenError),  # in another's name
        (countersign(SignedHead.sign(head.federation, head.head, "t", key), "north", key, "t"), DataError),
        ({**countersign(head, "north", key, "t"), "head": earlier.envelope.to_dict()}, DataError),
    ):
        with pytest.raises(kind):
            north.link.countersign(made)
    for _ in range(6):
        north.witnessing.exchange()
    relayed = [one for one in south.link.witnesses() if one["site"] == "north"]
    assert 1 <= len(relayed) <= 4
    for one in relayed:
        found, made = read_countersigned(one["head"], one["countersignature"])
        assert made.site == "north" and made.key == key.public.raw.hex() and found.federation == head.federation


def _changed_key(north: Site, south: Site, server: Running) -> None:
    """Another key in the same name is refused until an operator drops the old one; other sites are told."""

    def drop() -> None:
        verify = client_context(server.certs / "operators" / "ops")
        told = {"client": "north", "reason": "its disk died"}
        with httpx.Client(base_url=server.url, verify=verify, trust_env=False) as ops:
            assert ops.post("/v1/operator/drop-key", json=told).status_code == 204

    path = north.own_key._path
    shutil.move(path, path.with_suffix(".old"))
    with pytest.raises(ForbiddenError, match="has registered"):
        north.witnessing.exchange()
    drop()
    with pytest.raises(ForbiddenError, match="has registered"):
        north.witnessing.exchange()
    north.register(again=True)
    north.witnessing.exchange()
    south.witnessing.exchange()
    assert "another key" in south.witnessing.seen()["north"].note
    shutil.move(path.with_suffix(".old"), path)
    drop()
    north.register(again=True)
    north.witnessing.exchange()
    south.witnessing.exchange()
    json.dumps(south.link.witnesses())
