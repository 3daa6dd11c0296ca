"""The server's store: what one client's upload touches, and what it leaves to the sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from federation.runs import halves, settings, three
from shards import written
from splitwiper import Federation
from splitwiper.errors import CorruptError, NotFoundError
from splitwiper.store import ModelRecord, ServerStore, exclusion, files, ledger, manifest_digest
from splitwiper.store.replay import Replay
from splitwiper.wire import Column, Label, Request, Statement, open_shard

LABELS = (Label("", "a"),)


@pytest.fixture
def store(tmp_path: Path) -> ServerStore:
    made = ServerStore(tmp_path / "server")
    weights = {"w": torch.zeros(1)}
    made.create(config="", initial=weights, client_initial=weights, meta={"config": "digest", "start": "initial"})
    return made


def upload(store: ServerStore, client: str, value: float, *tickets: str) -> None:
    column, values = Column("x", "F32", (3,)), np.full((2, 3), value, np.float32)
    source = written(store.root.parent / "outgoing", column, values, LABELS)
    with store.staging(source) as staged:
        record = store.accept(client, staged, open_shard(staged), Statement("", "", "", {}, tickets))
    source.unlink()
    assert record == store.shard(client)


def publish(store: ServerStore) -> ModelRecord:
    manifest = manifest_digest(store.shards())
    record = ModelRecord(
        files.random_name("model"), "digest", manifest, b"salt", LABELS, True, {"threads": "1"}, 0.0, ()
    )
    assert store.publish(record, {"w": torch.ones(1)}, manifest=manifest) is not None
    return record


def present(store: ServerStore, folder: str) -> set[str]:
    return {path.name for path in (store.root / folder).iterdir()}


def test_one_client_is_found_without_reading_the_others(store: ServerStore) -> None:
    for number, name in enumerate(("north", "south", "west")):
        upload(store, name, number)
        store.submit(Request(f"ticket-{number}", name, "class"))
    store.submit(Request("late", "south", "sample"))
    assert [store.shard(record.client) for record in store.shards()] == list(store.shards())
    assert store.shard("east") is None
    assert store.knows("south") and not store.knows("east")
    assert [ticket.id for ticket in store.tickets("south")] == ["ticket-1", "late"]
    assert [ticket.id for ticket in store.tickets()] == ["ticket-0", "ticket-1", "ticket-2", "late"]
    assert store.tickets("east") == ()
    assert store.ticket("late").client == "south"
    with pytest.raises(NotFoundError, match="'early'"):
        store.ticket("early")


@pytest.mark.parametrize("value", [1.0, 2.0])  # the same rows again, and other rows
def test_an_upload_erases_what_it_replaces_and_nothing_else(store: ServerStore, value: float) -> None:
    upload(store, "north", 1.0)
    upload(store, "south", 5.0)
    model = publish(store)
    old = store.shard("north")
    (store.root / "shards" / "stray").touch()
    upload(store, "north", value)
    assert old is not None
    assert (old.file in present(store, "shards")) == (value == 1.0)
    assert present(store, "shards") == store.kept()["shards"] | {"stray"}  # a look through the folder is the sweep's
    assert present(store, "models") == {model.file}
    store.sweep()
    assert present(store, "shards") == store.kept()["shards"]


def test_the_model_that_knew_forgotten_rows_goes_with_the_shard(store: ServerStore) -> None:
    upload(store, "north", 1.0)
    upload(store, "south", 5.0)
    publish(store)
    store.submit(Request("ticket", "north", "class"))
    upload(store, "north", 2.0, "ticket")
    assert present(store, "models") == set()
    publish(store)
    store.submit(Request("another", "south", "client"))
    store.withdraw("south", None, answers=["another"])
    assert present(store, "models") == set()
    assert present(store, "shards") == store.kept()["shards"]
    assert len(present(store, "shards")) == 1


# --- shards that are erased without their client's doing ---------------------------------------------------------


def played(store: ServerStore) -> Replay:
    made = Replay()
    for entry in ledger.entries(store.database):
        made.add(entry)
    return made


def test_only_the_shard_that_is_meant_is_set_aside(store: ServerStore) -> None:
    """The one at fault may have been replaced while it was being looked for."""
    upload(store, "north", 1.0)
    old = store.shard("north")
    assert old is not None
    store.submit(Request("ticket", "north", "class"))
    upload(store, "north", 2.0)
    for file in (old.file, ""):
        exclusion.set_aside(store, "north", by="training", why="it fails", file=file)
        assert store.shard("north") is not None and store.ticket("ticket").state == "accepted"
    now = store.shard("north")
    assert now is not None and exclusion.taken_away(store, "north") is None
    exclusion.set_aside(store, "north", by="training", why="it fails", file=now.file)
    assert store.shard("north") is None and store.ticket("ticket").state == "erased"
    assert present(store, "shards") == set()
    entry = exclusion.taken_away(store, "north")
    assert entry is not None and (entry["by"], entry["why"]) == ("training", "it fails")
    assert not played(store).shards and played(store).generations == store.clients()


def test_eviction_is_read_from_the_ledger(store: ServerStore) -> None:
    upload(store, "north", 1.0)
    for _ in range(2):
        exclusion.evict(store, "north", "ops")
    assert exclusion.is_evicted(store, "north") and not exclusion.is_evicted(store, "south")
    assert store.shard("north") is None and played(store).evicted == {"north"}
    exclusion.admit(store, "north", "ops")
    with pytest.raises(NotFoundError, match="not evicted"):
        exclusion.admit(store, "north", "ops")
    upload(store, "north", 2.0)
    assert played(store).evicted == set() and exclusion.taken_away(store, "north") is None
    kinds = [entry["kind"] for entry in ledger.entries(store.database)]
    assert kinds.count("evicted") == kinds.count("admitted") == kinds.count("withdrawn") == 1


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "withdrawn", "client": "south", "by": "nobody"},
        {"kind": "shard", "client": "north", "shard": "00" * 32},
    ],
)
def test_a_ledger_that_contradicts_itself_is_noticed(store: ServerStore, entry: dict[str, str]) -> None:
    upload(store, "south", 1.0)
    exclusion.evict(store, "north", "ops")
    with store.database.change() as db:
        ledger.append(db, entry)
    with pytest.raises(CorruptError):
        played(store)


def test_a_shard_that_is_sent_again_keeps_its_file_unless_that_is_damaged(store: ServerStore) -> None:
    """A training that has begun on the file is not disturbed, however often it comes again."""
    upload(store, "north", 1.0)
    file = store.shard("north").file
    upload(store, "north", 1.0)
    assert store.shard("north").file == file and present(store, "shards") == {file}
    (store.root / "shards" / file).write_bytes(b"damaged")
    upload(store, "north", 1.0)
    assert store.shard("north").file != file and store.open(store.shard("north")).rows == 2
    assert len(ledger.entries(store.database)) == 2  # made, and one shard


def test_looks_are_answered_from_memory_until_somebody_changes_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn(three())
    here, other = ServerStore(tmp_path / "run" / "server"), fed._server.store
    assert here.is_current() and here.manifest() == manifest_digest(here.shards()) and not here.waiting()
    read = here.database.read

    def refused(sql: str, values: Sequence[Any] = ()) -> Any:
        assert "FROM seal" in sql, sql
        return read(sql, values)

    with monkeypatch.context() as patched:
        patched.setattr(here.database, "read", refused)
        assert here.is_current() and here.manifest() and not here.waiting()

    before = here.manifest()
    ticket = fed.submit("north", classes=["bird"])
    assert [one.id for one in here.waiting()] == [ticket.id]
    fed.settle()
    assert here.is_current() and not here.waiting() and here.manifest() != before
    with here.database.change() as db:
        db.execute("UPDATE shards SET rows = rows + 1 WHERE client = 'south'")
        assert here.manifest() == manifest_digest(here.shards())  # within a change, memory is of no use
        assert not here.is_current()
    assert not here.is_current() and not other.is_current() and other.manifest() == here.manifest()


def test_what_others_are_labelled_with_is_read_once_each(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn(three())
    store = fed._server.store
    labels = {shard.client: shard.labels for shard in store.shards()}
    with store.database.change() as db:  # a second client with the labels of 'south'
        db.execute("INSERT INTO clients VALUES ('east', 1)")
        db.execute(
            "INSERT INTO shards SELECT 'east', 'other', digest, rows, size, salt, labels, codebook, outputs, signed "
            "FROM shards WHERE client = 'south'"
        )
    for client in ("north", "south", "west", "nobody"):
        others = {held for name, held in labels.items() if name != client} | {labels["south"]}
        found = list(store.codes_beside(client))
        assert len(found) == len(others) and {held for _, _, held in found} == others
    assert {(codebook, outputs) for codebook, outputs, _ in store.codes_beside("north")} == {("", 0)}
    assert store.rows() == sum(shard.rows for shard in store.shards())
