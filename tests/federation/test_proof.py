"""Verify proves three things apart: rows gone, state recomputed, history grown. Tampering with any of them shows."""

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from federation.runs import FEATURES, assert_same, halves, ids_at, positions_in_last_slice, settings, three, without
from splitwiper import Federation, Receipt, split
from splitwiper.client.content import MAC_COLUMN, rewrite_slice, row_macs
from splitwiper.data.rows import as_rows
from splitwiper.errors import CorruptError, StoreError, TrainingError
from splitwiper.splitting import CutWarning
from splitwiper.store import ServerStore, ledger, tickets
from splitwiper.store.database import Database
from splitwiper.wire import Request
from store.tampering import tampered

ALTERED = "was changed by something other than SplitWiper"


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("learned") / "run"
    Federation(path, halves(), settings(slices=2)).learn(three())
    return path


@pytest.fixture(scope="module")
def forgot(learned: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forgot") / "run"
    shutil.copytree(learned, path)
    reopened(path).unlearn("north", classes=["bird"])
    return path


def reopened(path: Path) -> Federation:
    return Federation(path, halves())


@pytest.fixture
def fed(learned: Path, tmp_path: Path) -> Federation:
    """A run of three clients, nothing forgotten."""
    shutil.copytree(learned, tmp_path / "run")
    return reopened(tmp_path / "run")


@pytest.fixture
def done(forgot: Path, tmp_path: Path) -> Federation:
    """The same after north's birds were forgotten."""
    shutil.copytree(forgot, tmp_path / "done")
    return reopened(tmp_path / "done")


def database_of(fed: Federation, client: str) -> Path:
    return fed.path / "clients" / client / "client.db"


# --- the rows that were asked to go ------------------------------------------------------------------------------

FLIP = "UPDATE suppressed SET mac = ? WHERE mac = ?"


def flipped(fed: Federation, client: str) -> tuple[bytes, bytes]:
    """The HMAC of a suppressed row with one bit changed, and as it is."""
    value = min(fed._client(client).store.suppressed())
    return bytes([value[0] ^ 1]) + value[1:], value


@pytest.mark.parametrize("change", ["flip", "empty"])
def test_a_suppression_list_edited_before_settling_stops_the_client(fed: Federation, change: str) -> None:
    fed.submit("north", classes=["bird"])
    values = flipped(fed, "north")
    with tampered(database_of(fed, "north")) as db:
        if change == "flip":
            assert db.execute(FLIP, values).rowcount == 1
        else:
            assert db.execute("DELETE FROM suppressed").rowcount == 10
    with pytest.raises(CorruptError, match=ALTERED):
        reopened(fed.path).settle()
    assert fed.receipts() == ()
    found = reopened(fed.path).verify()
    assert found.outcome == "mismatch" and ALTERED in found.reason and "north" in found.reason


@pytest.mark.parametrize("change", ["flip", "empty"])
def test_even_with_the_client_s_key_other_rows_are_not_those_committed_to(fed: Federation, change: str) -> None:
    """Whoever edits the list and seals it again gets a receipt, and a model that knows the rows: verify says so."""
    fed.submit("north", classes=["bird"])
    with fed._client("north").store.database.change() as db:
        if change == "flip":
            db.execute(FLIP, flipped(fed, "north"))
        else:
            db.execute("DELETE FROM suppressed")
    (receipt,) = fed.settle()
    for found in (fed.verify(receipt), fed.verify()):
        assert found.outcome == "mismatch" and "is not what ticket" in found.reason
        assert found.claims["rows"] == "mismatch" and found.claims["history"] == "exact"


def test_a_row_cannot_be_let_back_in(done: Federation) -> None:
    values = flipped(done, "north")
    with tampered(database_of(done, "north")) as db:
        db.execute(FLIP, values)
    with pytest.raises(CorruptError, match=ALTERED):
        reopened(done.path).learn({"north": three()["north"]})


def test_a_row_let_back_in_with_the_key_is_found(done: Federation) -> None:
    with done._client("north").store.database.change() as db:
        db.execute(FLIP, flipped(done, "north"))
    assert done.learn({"north": three()["north"]}).added["north"].new == 1
    assert done.verify().claims["rows"] == "mismatch"


def test_learning_the_same_again_puts_no_row_in_twice(done: Federation) -> None:
    before = {p: p.read_bytes() for p in sorted(done.path.rglob("*.safetensors"))}
    added = done.learn(three()).added
    assert (added["north"].new, added["north"].refused, added["south"].new) == (0, 10, 0)
    assert {p: p.read_bytes() for p in sorted(done.path.rglob("*.safetensors"))} == before
    assert done.verify().exact


def test_a_row_that_is_in_a_slice_twice_is_found(fed: Federation) -> None:
    """As the holder of the client's key could put it there."""
    client = fed._client("north")
    number, part = next(iter(client.holdings.slices().items()))
    twice = np.r_[np.arange(part.rows), 0]
    inputs = {c.name: np.asarray(part.columns[c.name])[twice] for c in client.holdings.columns}
    macs, labels = np.asarray(part.columns[MAC_COLUMN])[twice], [part.labels[part.codes[i]] for i in twice]
    record = rewrite_slice(client.store.root / "slices", client.holdings.columns, None, add=(inputs, macs, labels))
    assert record is not None and record.rows == part.rows + 1
    client.store.put_slices({number: record})
    client.sync()
    fed.settle()
    found = fed.verify()
    assert found.outcome == "mismatch" and "do not belong there" in found.reason


# --- checkpoints -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["a bit of the header", "a bit of the weights", "the file"])
def test_a_damaged_checkpoint_is_found_and_never_used(fed: Federation, tmp_path: Path, damage: str) -> None:
    store, gone = fed._client("north").store, positions_in_last_slice(fed, "north")[:1]
    (record,) = store.checkpoints().values()  # the next training starts from it
    path = store.root / "checkpoints" / record.file
    data = bytearray(path.read_bytes())
    data[data.index(b"bird") if "header" in damage else -2] ^= 1
    path.write_bytes(data)
    if damage == "the file":
        path.unlink()
    found = fed.verify()
    assert found.outcome == "mismatch" and path.name in found.reason
    never = fed.twin(tmp_path / "never")
    data = three()
    never.learn({**data, "north": without(data["north"], ~np.isin(np.arange(30), gone))})
    receipt = fed.unlearn("north", samples=ids_at(fed, "north", gone))
    assert_same(fed, never)
    assert fed.verify(receipt).exact and fed.verify().exact


# --- databases, edited without their keys ----------------------------------------------------------------------------

SERVER = [
    "DELETE FROM ledger WHERE seq > 1",
    "DELETE FROM tickets",
    "UPDATE tickets SET level = 'sample'",
    "UPDATE tickets SET receipt = replace(receipt, 'north', 'south')",
    "UPDATE tickets SET state = 'accepted'",
    "UPDATE clients SET generation = generation + 1",
    "UPDATE model SET losses = '[]'",
    "UPDATE shards SET size = size + 1",
    "DELETE FROM shards WHERE client = 'south'",
    "UPDATE meta SET value = 'x' WHERE key = 'config'",
    "INSERT INTO meta VALUES ('note', 'mine')",
    "UPDATE seal SET total = zeroblob(32)",
    "DELETE FROM seal",
]
CLIENT = [
    "DELETE FROM suppressed",
    "DELETE FROM requests",
    "UPDATE requests SET level = 'sample'",
    "UPDATE requests SET salt = zeroblob(32)",
    "UPDATE slices SET rows = rows + 1",
    "DELETE FROM checkpoints",
    "UPDATE meta SET value = 'birds' WHERE key = 'task'",
    "UPDATE meta SET value = '' WHERE key = 'uploaded'",
    "DELETE FROM meta WHERE key = 'head'",
    "UPDATE seal SET nonce = zeroblob(32)",
]


@pytest.mark.parametrize("sql", SERVER)
def test_an_edit_of_the_server_s_book_is_found(done: Federation, sql: str) -> None:
    with tampered(done.path / "server" / "server.db") as db:
        assert db.execute(sql).rowcount > 0
    found = done.verify()
    assert found.outcome == "mismatch" and ALTERED in found.reason and "server.db" in found.reason
    with pytest.raises(CorruptError, match=ALTERED):
        reopened(done.path)


@pytest.mark.parametrize("sql", CLIENT)
def test_an_edit_of_a_client_s_book_is_found(done: Federation, sql: str) -> None:
    with tampered(database_of(done, "north")) as db:
        assert db.execute(sql).rowcount > 0
    found = reopened(done.path).verify()
    assert found.outcome == "mismatch" and ALTERED in found.reason and "north" in found.reason
    with pytest.raises(CorruptError, match=ALTERED):
        reopened(done.path).learn({"north": three()["north"]})


def test_triggers_that_stay_away_are_found(done: Federation) -> None:
    """Without them, later edits would not be counted."""
    with tampered(database_of(done, "north")) as db:
        pass
    assert done.verify().exact  # taking them off and putting them back is no change
    with tampered(database_of(done, "north")) as db:
        db.execute("CREATE TABLE scrap (x)")
    assert ALTERED in reopened(done.path).verify().reason


# --- the server's key alone --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", SERVER[1:7])
def test_records_that_the_ledger_does_not_lead_to_are_found(done: Federation, sql: str) -> None:
    """Sealed properly, by the holder of the server's key."""
    with done._server.store.database.change() as db:
        assert db.execute(sql).rowcount > 0
    found = reopened(done.path).verify()
    assert found.outcome == "mismatch" and found.claims == {"history": "mismatch"}


def test_a_forged_receipt_is_not_the_client_s(done: Federation) -> None:
    """The server makes up a request and settles it, ledger and all; the client never made it."""
    before = done.receipts()
    with done._server.store.database.change() as db:
        tickets.submit(db, Request("f" * 32, "south", "class", "ab" * 32))
        db.execute("UPDATE tickets SET state = 'erased' WHERE id = ?", ("f" * 32,))
        (forged,) = tickets.settle(db)
    assert done.receipts() == (*before, forged)
    for found in (done.verify(forged), done.verify()):
        assert found.outcome == "mismatch" and "south never made the request" in found.reason
        assert found.claims["history"] == "exact" and found.claims["rows"] == "mismatch"


def test_a_shard_that_was_dropped_is_missed(done: Federation) -> None:
    """The server withdraws a client that did not ask, records it, and trains without it."""
    done._server.store.withdraw("south", None, answers=())
    done._server.train()
    found = done.verify()
    assert found.outcome == "mismatch" and "yet there is no shard of them" in found.reason
    assert found.claims["history"] == "exact" and found.claims["state"] == "mismatch"


def rewrite(store: ServerStore, bodies: Sequence[Mapping[str, Any]]) -> None:
    """Replace the ledger by another one, chained and sealed: all that the server's key allows."""
    with store.database.change() as db:
        kept = db.execute("SELECT name, sql FROM sqlite_master WHERE name LIKE 'ledger_no_%'").fetchall()
        for name, _ in kept:
            db.execute(f"DROP TRIGGER {name}")
        db.execute("DELETE FROM ledger")
        for body in bodies:
            ledger.append(db, {key: value for key, value in body.items() if key not in ("seq", "hash")})
        for _, sql in kept:
            db.execute(sql)


def test_a_ledger_that_was_cut_is_found(fed: Federation) -> None:
    entries = ledger.entries(fed._server.store.database)
    rewrite(fed._server.store, [*entries, {"kind": "shard", "client": "east", "shard": "00" * 32}])
    fed._client("north").pin(fed.head())
    rewrite(fed._server.store, entries)
    found = fed.verify()
    assert found.outcome == "mismatch" and "rolled back" in found.reason and "client north" in found.reason


def test_a_ledger_that_was_rewritten_is_found(fed: Federation, tmp_path: Path) -> None:
    """In another order it leads to the same records; whoever remembers its head is not taken in."""
    entries, head = ledger.entries(fed._server.store.database), fed.head()
    assert [entry["kind"] for entry in entries] == ["created", "shard", "shard", "shard", "model"]
    rewrite(fed._server.store, [entries[0], *entries[3:0:-1], entries[4]])
    found = reopened(fed.path).verify()
    assert found.outcome == "mismatch" and "rewritten" in found.reason and "client" in found.reason
    for name in three():  # clients' folders away, only a head kept outside tells
        (fed.path / "clients" / name).rename(tmp_path / name)
    assert reopened(fed.path).verify().claims["history"] == "exact"
    found = reopened(fed.path).verify(head=head)
    assert found.outcome == "mismatch" and "rewritten" in found.reason and "you" in found.reason


# --- old copies --------------------------------------------------------------------------------------------------


def test_an_old_copy_of_the_whole_run_is_noticed_from_outside(fed: Federation, tmp_path: Path) -> None:
    early = fed.head()
    shutil.copytree(fed.path, tmp_path / "old")
    receipt = fed.unlearn("north", classes=["bird"])
    late = fed.head()
    assert late > early and fed.verify(receipt, head=early).exact and fed.verify(head=str(late)).exact
    old = reopened(tmp_path / "old")
    assert old.verify().exact and old.verify(head=early).exact  # nothing inside it tells
    found = old.verify(receipt)
    assert found.outcome == "mismatch" and "never settled" in found.reason
    found = old.verify(head=str(late))
    assert found.outcome == "mismatch" and "rolled back" in found.reason


def test_an_old_copy_of_the_server_is_noticed_by_its_clients(fed: Federation, tmp_path: Path) -> None:
    shutil.copytree(fed.path / "server", tmp_path / "server")
    fed.unlearn("north", classes=["bird"])
    shutil.rmtree(fed.path / "server")
    shutil.copytree(tmp_path / "server", fed.path / "server")
    found = reopened(fed.path).verify()
    assert found.outcome == "mismatch" and "rolled back" in found.reason and "client north" in found.reason


# --- rows that cannot be trained on ------------------------------------------------------------------------------


def test_a_shard_withdrawn_because_one_row_is_left_is_exact(tmp_path: Path) -> None:
    """Batch norm takes no batch of one row: without a shard, the run is that of one that never had the client."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    with pytest.warns(CutWarning, match="batch normalisation"):
        cut = split(model, at="1", example=torch.zeros(1, FEATURES))
    fed = Federation(tmp_path / "run", cut, settings())
    data = three()
    fed.learn({"north": without(data["north"], np.arange(30) < 3), "south": data["south"]})
    with pytest.raises(TrainingError, match="a batch of 1 rows"):
        fed.unlearn("north", samples=ids_at(fed, "north", [0, 1]))
    (receipt,) = fed.receipts()
    found = fed.verify(receipt)
    assert found.exact and any("cannot be trained on" in check.detail for check in found.checks)
    assert fed.verify().exact and fed.status().todo == ()
    assert "a batch of 1 rows" in next(c.untrainable for c in fed.status().clients if c.name == "north")
    never = fed.twin(tmp_path / "never")
    never.learn({"south": data["south"]})
    one, other = (f._server.store.model() for f in (fed, never))
    assert one is not None and other is not None and (one.digest, one.labels) == (other.digest, other.labels)


def test_rows_that_are_said_to_be_untrainable_and_are_not(done: Federation) -> None:
    """The client's own word is not taken for it."""
    done._server.store.withdraw("south", None, answers=())
    done._server.train()
    done._client("south").store.remember(untrainable="a batch of 1 rows")
    found = done.verify()
    assert found.outcome == "mismatch" and "yet there is no shard of them" in found.reason


# --- reading alone -----------------------------------------------------------------------------------------------


@pytest.fixture
def sealed_off(done: Federation, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of which nothing may be written; permissions do not stop root, so the question is answered for it."""
    paths = [done.path, *done.path.rglob("*")]
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    if os.geteuid() == 0:
        monkeypatch.setattr(Database, "is_writable", lambda self: False)
    yield done.path
    for path in paths:
        path.chmod(path.stat().st_mode | 0o200)


def test_a_read_only_copy_can_be_verified(sealed_off: Path) -> None:
    def image() -> dict[Path, bytes]:
        return {p: p.read_bytes() for p in sorted(sealed_off.rglob("*")) if p.is_file()}

    before = image()
    fed = reopened(sealed_off)
    assert fed.verify(fed.receipts()[0]).exact and fed.verify().exact
    assert image() == before
    with pytest.raises(StoreError):
        fed.unlearn("south", classes=["cat"])
    assert {p: b for p, b in image().items() if p.suffix == ".db"} == {
        p: b for p, b in before.items() if p.suffix == ".db"
    }


# --- commitments -------------------------------------------------------------------------------------------------


def test_the_requester_can_open_its_commitment(done: Federation) -> None:
    (receipt,) = done.receipts()
    store = done._client("north").store
    opening = store.opening(receipt.ticket)
    assert opening.commitment == receipt.commitment
    x, y = three()["north"]
    key = store.key()
    assert key is not None
    assert set(opening.rows) == set(row_macs(as_rows((x[y == "bird"], y[y == "bird"]), task=""), key))
    others = [
        dataclasses.replace(opening, rows=opening.rows[1:]),
        dataclasses.replace(opening, rows=(*opening.rows, bytes(32))),
        dataclasses.replace(opening, salt=bytes(32)),
        dataclasses.replace(opening, level="sample"),
        dataclasses.replace(opening, ticket="0" * 32),
    ]
    assert all(other.commitment != receipt.commitment for other in others)


def test_a_receipt_does_not_tell_how_many_rows_went(learned: Path, tmp_path: Path) -> None:
    texts = []
    for count in (1, 9):
        path = shutil.copytree(learned, tmp_path / str(count))
        fed = reopened(path)
        receipt = fed.unlearn("north", samples=ids_at(fed, "north", range(count)))
        assert len(receipt.commitment) == 64
        texts.append(json.dumps(plain(receipt)))
    assert len(texts[0]) == len(texts[1])
    # what differs is random or commits to what is random: everything else is equal, letter by letter
    hidden = [json.loads(text) for text in texts]
    for values in hidden:
        for name in ("ticket", "commitment", "ledger", "before", "after", "settled"):
            del values[name]
    assert hidden[0] == hidden[1]


def plain(receipt: Receipt) -> dict[str, Any]:
    """A receipt without the server's seconds, which no two trainings share."""
    return dataclasses.replace(receipt, server_seconds=0.0).to_dict()
