"""The server's tree: what one client's upload touches, and what it leaves to the sweep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from splitwiper.errors import CorruptError, NotFoundError
from splitwiper.store import ModelRecord, ServerTree, exclusion, files, ledger, manifest_digest
from splitwiper.store.replay import Replay
from splitwiper.wire import Column, Label, Request, Statement, open_shard, write_shard

LABELS = (Label("", "a"),)


@pytest.fixture
def tree(tmp_path: Path) -> ServerTree:
    made = ServerTree(tmp_path / "server")
    weights = {"w": torch.zeros(1)}
    made.create(config="", initial=weights, client_initial=weights, meta={"config": "digest", "start": "initial"})
    return made


def upload(tree: ServerTree, client: str, value: float, *tickets: str) -> None:
    source = tree.root.parent / "outgoing"
    block = ({"x": np.full((2, 3), value, np.float32)}, np.zeros(2, np.int32))
    with source.open("wb") as file:
        write_shard(file, columns=[Column("x", "F32", (3,))], rows=2, labels=LABELS, blocks=[block])
    with tree.staging(source) as staged:
        record = tree.accept(client, staged, open_shard(staged), Statement("", "", "", {}, tickets))
    source.unlink()
    assert record == tree.shard(client)


def publish(tree: ServerTree) -> ModelRecord:
    manifest = manifest_digest(tree.shards())
    record = ModelRecord(
        files.random_name("model"), "digest", manifest, b"salt", LABELS, True, {"threads": "1"}, 0.0, ()
    )
    assert tree.publish(record, {"w": torch.ones(1)}, manifest=manifest) is not None
    return record


def present(tree: ServerTree, folder: str) -> set[str]:
    return {path.name for path in (tree.root / folder).iterdir()}


def test_one_client_is_found_without_reading_the_others(tree: ServerTree) -> None:
    for number, name in enumerate(("north", "south", "west")):
        upload(tree, name, number)
        tree.submit(Request(f"ticket-{number}", name, "class"))
    tree.submit(Request("late", "south", "sample"))
    assert [tree.shard(record.client) for record in tree.shards()] == list(tree.shards())
    assert tree.shard("east") is None
    assert tree.knows("south") and not tree.knows("east")
    assert [ticket.id for ticket in tree.tickets("south")] == ["ticket-1", "late"]
    assert [ticket.id for ticket in tree.tickets()] == ["ticket-0", "ticket-1", "ticket-2", "late"]
    assert tree.tickets("east") == ()
    assert tree.ticket("late").client == "south"
    with pytest.raises(NotFoundError, match="'early'"):
        tree.ticket("early")


@pytest.mark.parametrize("value", [1.0, 2.0])  # the same rows again, and other rows
def test_an_upload_erases_what_it_replaces_and_nothing_else(tree: ServerTree, value: float) -> None:
    upload(tree, "north", 1.0)
    upload(tree, "south", 5.0)
    model = publish(tree)
    old = tree.shard("north")
    (tree.root / "shards" / "stray").touch()
    upload(tree, "north", value)
    assert old is not None
    assert (old.file in present(tree, "shards")) == (value == 1.0)
    assert present(tree, "shards") == tree.kept()["shards"] | {"stray"}  # a look through the folder is the sweep's
    assert present(tree, "models") == {model.file}
    tree.sweep()
    assert present(tree, "shards") == tree.kept()["shards"]


def test_the_model_that_knew_forgotten_rows_goes_with_the_shard(tree: ServerTree) -> None:
    upload(tree, "north", 1.0)
    upload(tree, "south", 5.0)
    publish(tree)
    tree.submit(Request("ticket", "north", "class"))
    upload(tree, "north", 2.0, "ticket")
    assert present(tree, "models") == set()
    publish(tree)
    tree.submit(Request("another", "south", "client"))
    tree.withdraw("south", None, answers=["another"])
    assert present(tree, "models") == set()
    assert present(tree, "shards") == tree.kept()["shards"]
    assert len(present(tree, "shards")) == 1


# --- shards that are erased without their client's doing ---------------------------------------------------------


def played(tree: ServerTree) -> Replay:
    made = Replay()
    for entry in ledger.entries(tree.book):
        made.add(entry)
    return made


def test_only_the_shard_that_is_meant_is_set_aside(tree: ServerTree) -> None:
    """The one at fault may have been replaced while it was being looked for."""
    upload(tree, "north", 1.0)
    old = tree.shard("north")
    assert old is not None
    tree.submit(Request("ticket", "north", "class"))
    upload(tree, "north", 2.0)
    for file in (old.file, ""):
        exclusion.set_aside(tree, "north", by="training", why="it fails", file=file)
        assert tree.shard("north") is not None and tree.ticket("ticket").state == "accepted"
    now = tree.shard("north")
    assert now is not None and exclusion.taken_away(tree, "north") is None
    exclusion.set_aside(tree, "north", by="training", why="it fails", file=now.file)
    assert tree.shard("north") is None and tree.ticket("ticket").state == "erased"
    assert present(tree, "shards") == set()
    entry = exclusion.taken_away(tree, "north")
    assert entry is not None and (entry["by"], entry["why"]) == ("training", "it fails")
    assert not played(tree).shards and played(tree).generations == tree.clients()


def test_eviction_is_read_from_the_ledger(tree: ServerTree) -> None:
    upload(tree, "north", 1.0)
    for _ in range(2):
        exclusion.evict(tree, "north", "ops")
    assert exclusion.is_evicted(tree, "north") and not exclusion.is_evicted(tree, "south")
    assert tree.shard("north") is None and played(tree).evicted == {"north"}
    exclusion.admit(tree, "north", "ops")
    with pytest.raises(NotFoundError, match="not evicted"):
        exclusion.admit(tree, "north", "ops")
    upload(tree, "north", 2.0)
    assert played(tree).evicted == set() and exclusion.taken_away(tree, "north") is None
    kinds = [entry["kind"] for entry in ledger.entries(tree.book)]
    assert kinds.count("evicted") == kinds.count("admitted") == kinds.count("withdrawn") == 1


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "withdrawn", "client": "south", "by": "nobody"},
        {"kind": "shard", "client": "north", "shard": "00" * 32},
    ],
)
def test_a_ledger_that_contradicts_itself_is_noticed(tree: ServerTree, entry: dict[str, str]) -> None:
    upload(tree, "south", 1.0)
    exclusion.evict(tree, "north", "ops")
    with tree.book.change() as db:
        ledger.append(db, entry)
    with pytest.raises(CorruptError):
        played(tree)


def test_a_shard_that_is_sent_again_keeps_its_file_unless_that_is_damaged(tree: ServerTree) -> None:
    """A training that has begun on the file is not disturbed, however often it comes again."""
    upload(tree, "north", 1.0)
    file = tree.shard("north").file
    upload(tree, "north", 1.0)
    assert tree.shard("north").file == file and present(tree, "shards") == {file}
    (tree.root / "shards" / file).write_bytes(b"damaged")
    upload(tree, "north", 1.0)
    assert tree.shard("north").file != file and tree.open(tree.shard("north")).rows == 2
    assert len(ledger.entries(tree.book)) == 2  # made, and one shard
