"""The four answers of verify, each for its own reason."""

import dataclasses
import errno
import json
import shutil
import tempfile
from pathlib import Path

import pytest
import torch

from federation.runs import ids_at, learned, settings
from splitwiper import Federation, Receipt
from splitwiper.errors import FormatError
from splitwiper.seeding import mac, state_digest
from splitwiper.store import ServerStore, files, ledger, tickets
from splitwiper.store.tensors import load_state, save_state


def record_model(store: ServerStore) -> None:
    """Record the model that there is in the ledger, as whoever has the server's key can."""
    model = store.model()
    assert model is not None
    told = mac(model.salt, "record", model.described()).hex()
    with store.database.change() as db:
        ledger.append(db, {"kind": "model", "model": tickets.commitments(db, "")["model"], "record": told})


@pytest.fixture
def run(tmp_path: Path) -> tuple[Federation, Receipt]:
    fed = learned(tmp_path / "run", settings(slices=2))
    return fed, fed.unlearn("north", classes=["bird"])


def test_exact_names_what_was_recomputed(run: tuple[Federation, Receipt]) -> None:
    fed, receipt = run
    found = fed.verify(receipt)
    assert found.exact and found.outcome == "exact"
    assert bool(found) and found.claims == {"history": "exact", "state": "exact", "rows": "exact"}
    records, middle = [("server", "history")], [("ledger", "history"), ("server", "state")]
    north, south, west = (
        [("client " + name, "history"), ("client " + name, "rows"), ("client " + name, "state")]
        for name in ("north", "south", "west")
    )
    assert [(c.what, c.claim) for c in found.checks] == [*records, north[0], *middle, *north[1:], ("server", "state")]
    assert [(c.what, c.claim) for c in fed.verify().checks] == [
        *records,
        *(north[0], south[0], west[0]),
        *middle,
        *(*north[1:], *south[1:], *west[1:]),
        ("server", "state"),
    ]


def test_verify_leaves_the_run_as_it_was(run: tuple[Federation, Receipt]) -> None:
    fed, receipt = run
    before = {p: p.read_bytes() for p in sorted(fed.path.rglob("*.safetensors"))}
    fed.verify(receipt)
    fed.verify()
    assert {p: p.read_bytes() for p in sorted(fed.path.rglob("*.safetensors"))} == before


def test_a_receipt_survives_a_file(run: tuple[Federation, Receipt], tmp_path: Path) -> None:
    fed, receipt = run
    receipt.save(tmp_path / "receipt.json")
    assert Receipt.load(tmp_path / "receipt.json") == receipt == fed.receipt(receipt.ticket)
    assert fed.verify(Receipt.load(tmp_path / "receipt.json")).exact
    assert fed.receipts() == (receipt,)


def test_mismatch_when_the_model_was_swapped(run: tuple[Federation, Receipt]) -> None:
    """An operator who puts another model in, with all digests adjusted, is found out by recomputing."""
    fed, _ = run
    store = fed._server.store
    model = store.model()
    assert model is not None
    state = {k: v + 1e-7 if v.is_floating_point() else v for k, v in store.weights(model).items()}
    save_state(store.root / "models" / model.file, state)
    with store.database.change() as db:
        db.execute("UPDATE model SET digest = ?", (state_digest(state),))
    found = fed.verify()
    assert found.outcome == "mismatch" and "not the one that the ledger recorded" in found.reason
    record_model(store)
    found = fed.verify()
    assert found.outcome == "mismatch" and "server half differs" in found.reason and not found
    assert found.claims == {"history": "exact", "rows": "exact", "state": "mismatch"}


def test_mismatch_when_a_client_half_was_trained_on_more(run: tuple[Federation, Receipt]) -> None:
    fed, receipt = run
    store = fed._client("north").store
    half = store.half()
    assert half is not None
    path = store.root / "half" / half[0].file
    state = {k: v * 1.0001 for k, v in load_state(path).items()}
    save_state(path, state)
    with store.database.change() as db:
        db.execute("UPDATE half SET digest = ?", (state_digest(state),))
    assert "client half differs" in fed.verify(receipt).reason


def test_mismatch_when_the_receipt_was_altered(run: tuple[Federation, Receipt]) -> None:
    fed, receipt = run
    altered = dataclasses.replace(receipt, client="south")
    found = fed.verify(altered)
    assert found.outcome == "mismatch" and "altered" in found.reason
    assert not found  # or "assert fed.verify(receipt)" would always pass
    stranger = dataclasses.replace(receipt, ticket="0" * 32)
    assert "never settled" in fed.verify(stranger).reason


def test_mismatch_when_the_ledger_was_altered(run: tuple[Federation, Receipt]) -> None:
    fed, receipt = run
    with fed._server.store.database.change() as db:
        (trigger,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'ledger_no_update'").fetchone()
        db.execute("DROP TRIGGER ledger_no_update")
        db.execute("UPDATE ledger SET body = replace(body, 'north', 'south') WHERE seq = 2")
        db.execute(trigger)
    found = fed.verify(receipt)
    assert found.outcome == "mismatch" and "entry 2" in found.reason


@pytest.mark.parametrize("side", ["client", "server"])
def test_not_comparable_under_other_numerics(run: tuple[Federation, Receipt], side: str) -> None:
    fed, _ = run
    database, name = (
        (fed._server.store.database, "model") if side == "server" else (fed._client("west").store.database, "half")
    )
    row = database.one(f"SELECT fingerprint FROM {name}")
    other = {**json.loads(row[0]), "torch": "1.0.0", "instruction_set": "NEON"}
    with database.change() as db:
        db.execute(f"UPDATE {name} SET fingerprint = ?", (json.dumps(other),))
    if side == "server":
        record_model(fed._server.store)
    found = fed.verify()
    assert found.outcome == "not_comparable" and "torch was 1.0.0" in found.reason


def test_the_number_of_threads_is_set_as_it_was(run: tuple[Federation, Receipt]) -> None:
    fed, receipt = run
    before, other = torch.get_num_threads(), int(receipt.fingerprint["server"]["threads"]) + 1
    try:
        torch.set_num_threads(other)
        assert fed.verify(receipt).exact
        assert torch.get_num_threads() == other
    finally:
        torch.set_num_threads(before)


def test_unverifiable_when_the_key_was_destroyed(run: tuple[Federation, Receipt]) -> None:
    fed, receipt = run
    (fed.path / "clients" / "north" / "key").unlink()
    found = fed.verify(receipt)
    assert found.outcome == "unverifiable" and "destroyed" in found.reason


def test_unverifiable_when_a_later_request_replaced_the_model(run: tuple[Federation, Receipt]) -> None:
    fed, first = run
    second = fed.unlearn("south", samples=ids_at(fed, "south", [0]))
    found = fed.verify(first)
    assert found.outcome == "unverifiable" and "replaced" in found.reason
    assert fed.verify(second).exact


def test_unverifiable_while_work_is_open(run: tuple[Federation, Receipt]) -> None:
    fed, _ = run
    fed.submit("south", samples=ids_at(fed, "south", [1]))
    with fed._server.store.database.change() as db:
        db.execute("DELETE FROM model")
    assert "settle first" in fed.verify().reason


def test_receipts_and_ledger_name_nothing_that_was_forgotten(run: tuple[Federation, Receipt]) -> None:
    fed, receipt = run
    text = json.dumps(receipt.to_dict()) + json.dumps(ledger.entries(fed._server.store.database))
    assert "bird" not in text
    digests = {s.digest for s in fed._server.store.shards()} | {fed._server.store.model().digest}
    assert not any(value in text for value in digests)
    assert set(receipt.context) == {
        "server_config",
        "server_initial",
        "server_model",
        "client_config",
        "client_initial",
        "client_key",
        "codebook",
    }


def test_a_request_that_never_reached_the_server_is_unfinished_and_no_mismatch(run: tuple[Federation, Receipt]) -> None:
    fed, receipt = run

    def stop(what: str, path: Path) -> None:
        if what == "commit:before" and path.name == "server.db":
            raise KeyboardInterrupt

    with files.watch(stop), pytest.raises(KeyboardInterrupt):
        fed.submit("north", samples=ids_at(fed, "north", [1]))
    assert fed.verify().outcome == fed.verify(receipt).outcome == "unverifiable"
    assert "finish it with settle" in fed.verify().reason
    fed.settle()
    assert fed.verify().exact


def test_a_file_larger_than_memory_is_a_mismatch(run: tuple[Federation, Receipt]) -> None:
    fed, receipt = run
    (half,) = (fed.path / "clients" / "north" / "half").iterdir()
    with half.open("r+b") as file:
        try:
            file.truncate(1 << 43)  # holes take no room
        except OSError:
            pytest.skip("no file system here for a file of this size")
    found = fed.verify(receipt)
    assert found.outcome == "mismatch" and "more than memory can hold" in found.reason


@pytest.mark.parametrize(
    "place",
    [
        "server/shards/shard-0.safetensors",
        "server/old.safetensors",
        "clients/north/old/x.safetensors",
        "clients/.tmp-north",
        "clients/again",
    ],
)
def test_what_was_erased_and_put_back_is_noticed_with_a_receipt_too(tmp_path: Path, place: str) -> None:
    fed = learned(tmp_path / "run")
    old = tmp_path / "old"
    shutil.copytree(fed.path / "clients" / "north", old)
    receipt = fed.unlearn("north", classes=["bird"])
    (part,) = (old / "slices").iterdir()
    target = fed.path / place
    if target.parent.name == "clients":
        (old / "client.db").unlink()
        shutil.copytree(old, target)
    else:
        target.parent.mkdir(exist_ok=True)
        shutil.copy(part, target)
    assert fed.verify(receipt).outcome == fed.verify().outcome == "unverifiable"
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
    assert fed.verify(receipt).exact and fed.verify().exact


def test_a_folder_that_no_client_can_have_is_a_mismatch(run: tuple[Federation, Receipt]) -> None:
    fed, _ = run
    shutil.copytree(fed.path / "clients" / "west", fed.path / "clients" / "we st")
    assert fed.verify().outcome == "mismatch" and "no client 'we st'" in fed.verify().reason


def test_verify_leaves_no_named_copy_of_rows_behind(
    run: tuple[Federation, Receipt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed, receipt = run
    room, seen = tmp_path / "room", set[Path]()
    room.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    fed._progress = fed._registry.progress = lambda *_, **__: seen.update(room.rglob("*"))  # while it is being written
    assert fed.verify(receipt).exact
    assert not seen and not list(room.iterdir())


def test_a_full_disk_is_no_mismatch(run: tuple[Federation, Receipt]) -> None:
    fed, receipt = run

    def full(what: str, path: Path) -> None:
        if what == "write:before":
            raise OSError(errno.ENOSPC, "no space left")

    with files.watch(full):
        found = fed.verify(receipt)
    assert found.outcome == "unverifiable" and "no room left" in found.reason


def test_a_state_that_no_training_left_is_a_mismatch(run: tuple[Federation, Receipt]) -> None:
    fed, _ = run
    store = ServerStore(fed.path / "server")
    (store.root / "epochs" / "old").write_bytes(b"an erased model")
    with store.database.change() as db:  # as whoever has the server's key can
        db.execute("INSERT INTO epochs VALUES (0, 'old', '')")
    assert fed.verify().outcome == "mismatch" and "one of each epoch" in fed.verify().reason


def test_a_receipt_that_says_a_thing_twice_is_refused(run: tuple[Federation, Receipt], tmp_path: Path) -> None:
    fed, receipt = run
    path = tmp_path / "receipt.json"
    receipt.save(path)
    path.write_text(path.read_text().replace("{", '{"level": "client",', 1))
    with pytest.raises(FormatError, match="twice"):
        fed.verify(path)
