"""What an insider with all keys may alter, digests and seals and all, and verify finds by recomputing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from federation.runs import halves, learned, settings
from splitwiper import Federation
from splitwiper.client.content import MAC_COLUMN, rewrite_slice
from splitwiper.seeding import state_digest
from splitwiper.store import files
from splitwiper.store.tensors import load_state, save_state


def labels_turned(fed: Federation) -> None:
    with fed._server.store.database.change() as db:
        (text,) = db.execute("SELECT labels FROM model").fetchone()
        import json

        db.execute("UPDATE model SET labels = ?", (json.dumps(json.loads(text)[::-1]),))


def label_added_to_a_shard(fed: Federation) -> None:
    with fed._server.store.database.change() as db:
        db.execute(
            """UPDATE shards SET labels = '["[\\"\\",\\"bird\\"]", ' || substr(labels, 2) WHERE client = 'south'"""
        )


def server_settings(fed: Federation) -> None:
    path = fed.path / "server" / "config.toml"
    path.write_text(path.read_text().replace("epochs = 2", "epochs = 3"))


def server_first_weights(fed: Federation) -> None:
    path = fed.path / "server" / "initial.safetensors"
    state = {k: v + 1 for k, v in load_state(path).items()}
    save_state(path, state)
    with fed._server.store.database.change() as db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'initial'", (state_digest(state),))


def client_settings(fed: Federation) -> None:
    path = fed.path / "clients" / "north" / "config.toml"
    path.write_text(path.read_text().replace("epochs = 2", "epochs = 3"))


def a_checkpoint(fed: Federation) -> None:
    store = fed._client("north").store
    number, record = next(iter(store.checkpoints().items()))
    path = store.root / "checkpoints" / record.file
    state = {k: v + 1 for k, v in load_state(path).items()}
    metadata = {"labels": "[]"}
    save_state(path, state, metadata)
    with store.database.change() as db:
        db.execute("UPDATE checkpoints SET digest = ? WHERE slice = ?", (state_digest(state, metadata), number))


def a_row_under_another_s_hmac(fed: Federation) -> None:
    client = fed._client("north")
    number, part = next(iter(client.holdings.slices().items()))
    columns = client.holdings.columns
    inputs = {c.name: part.columns[c.name].copy() for c in columns}
    inputs["x"][0] += 1
    macs = part.columns[MAC_COLUMN].copy()
    labels = [part.labels[code] for code in part.codes]
    record = rewrite_slice(client.store.root / "slices", columns, None, add=(inputs, macs, labels))
    with client.store.database.change() as db:
        db.execute("UPDATE slices SET file = ?, digest = ? WHERE slice = ?", (record.file, record.digest, number))
    client.store.sweep()


@pytest.mark.parametrize(
    ("alter", "reason"),
    [
        (labels_turned, "the model's training was altered"),
        (label_added_to_a_shard, "it was altered"),
        (server_settings, "config.toml is not what"),
        (server_first_weights, "first weights are not those"),
        (client_settings, "not what the client joined with"),
        (a_checkpoint, "checkpoints of client 'north' are not"),
        (a_row_under_another_s_hmac, "rows that were altered"),
    ],
)
def test_what_was_altered_is_found(tmp_path: Path, alter: Callable[[Federation], None], reason: str) -> None:
    fed = learned(tmp_path / "run", settings(slices=3))
    assert fed.verify().exact
    alter(fed)
    found = Federation(tmp_path / "run", halves()).verify()
    assert found.outcome == "mismatch" and reason in found.reason


def test_a_file_outside_the_book_is_swept(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run")
    stray = fed.path / "clients" / "north" / "slices" / files.random_name("slice")
    stray.write_bytes(b"left over")
    assert any("north" in line for line in fed.status().todo)
    fed.settle()
    assert not stray.exists()
