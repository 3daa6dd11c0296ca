"""Files that are not what was written: found, named, and healed where they can be computed again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reliability.stage import bits, config, halves, ids_at, place_keys, query, reopen, rows, scratch, strays
from splitwiper import Federation
from splitwiper.data.rows import as_rows
from splitwiper.errors import CorruptError, FormatError, SplitWiperError, StoreError
from splitwiper.federation import status

DATA = {"north": rows("north", "aaabbb"), "south": rows("south", "bbaa")}
X = DATA["north"][0]


@pytest.fixture(scope="module")
def learned() -> Iterator[Path]:
    folder = scratch()
    place_keys(folder / "run")
    Federation(folder / "run", halves(), config(slices=3)).learn(DATA)
    yield folder / "run"
    shutil.rmtree(folder)


@pytest.fixture
def run(learned: Path, tmp_path: Path) -> Path:
    shutil.copytree(learned, tmp_path / "run")
    return tmp_path / "run"


def flip(path: Path) -> None:
    """Change one bit in the middle of the data."""
    data = bytearray(path.read_bytes())
    data[-len(data) // 8] ^= 0x10
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


def garble(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(path.stat().st_size))


DAMAGE = [flip, truncate, empty, remove, garble]
damages = pytest.mark.parametrize("damage", DAMAGE, ids=lambda f: f.__name__)
Damage = Callable[[Path], None]


def file_of(run: Path, folder: str, database: str, table: str) -> Path:
    return run / folder / query(run / database, f"SELECT file FROM {table} ORDER BY 1")[0]["file"]


@damages
def test_a_damaged_shard_is_named_and_sent_again(run: Path, damage: Damage) -> None:
    before = bits(run)
    shard = run / "server/shards" / query(run / "server/server.db", "SELECT * FROM shards")[0]["file"]
    damage(shard)
    fed = reopen(run)
    assert fed.verify().outcome == "mismatch"
    with pytest.raises(CorruptError, match=r"shard of 'north' .*missing or damaged.*reupload\('north'\)"):
        fed.unlearn("south", classes=["a"])
    assert any("south" in what for what in status(run).todo)
    fed.reupload("north")
    fed.settle()
    assert [receipt.client for receipt in fed.receipts()] == ["south"]
    assert fed.verify().exact
    assert bits(run)["shard north"] == before["shard north"]
    assert strays(run) == []


@damages
def test_a_damaged_slice_is_named(run: Path, damage: Damage) -> None:
    """Rows live on the client alone: nothing can compute them again, and nothing may go on without them."""
    store = run / "clients/north"
    path = file_of(run, "clients/north/slices", "clients/north/client.db", "slices")
    whole = path.read_bytes()
    before = bits(run)
    damage(path)
    fed = reopen(run)
    for call in (lambda: fed.unlearn("north", classes=["a"]), lambda: fed.learn({"north": rows("n", "ab")})):
        with pytest.raises(CorruptError, match=f"{path.name}.*restore it from a backup"):
            call()
    assert fed.predict("north", X)
    assert fed.verify().outcome == "mismatch"
    assert path.name in fed.verify().reason
    path.write_bytes(whole)
    fed.settle()
    assert bits(run) == before
    assert fed.verify().exact
    assert store.exists()


@damages
def test_a_damaged_checkpoint_is_computed_again(run: Path, damage: Damage) -> None:
    place_keys(run.parent / "quiet")
    quiet = Federation(run.parent / "quiet", halves(), config(slices=3))
    for fed in (quiet, reopen(run)):
        fed.learn(DATA)
        if fed is not quiet:
            for path in (run / "clients/north/checkpoints").iterdir():
                damage(path)
        fed.unlearn("north", samples=ids_at(fed.path, "north", DATA["north"], [5]))
        assert fed.verify().exact
    assert bits(run) == bits(run.parent / "quiet")
    assert strays(run) == []


@damages
def test_a_damaged_model_is_named_and_trained_again(run: Path, damage: Damage) -> None:
    receipt = reopen(run).unlearn("south", samples=ids_at(run, "south", DATA["south"], [0]))
    before = bits(run)
    damage(file_of(run, "server/models", "server/server.db", "model"))
    with pytest.raises(CorruptError, match=r"model-.*settle"):
        reopen(run).predict("north", X)
    assert (reopen(run).verify().outcome, reopen(run).verify(receipt).outcome) == ("mismatch", "mismatch")
    assert "model-" in reopen(run).verify().reason
    reopen(run).settle()
    assert bits(run) == before
    assert reopen(run).predict("north", X)
    assert reopen(run).verify(receipt).exact
    assert strays(run) == []


@damages
def test_a_damaged_half_is_named_and_computed_again(run: Path, damage: Damage) -> None:
    before = bits(run)
    damage(file_of(run, "clients/north/half", "clients/north/client.db", "half"))
    with pytest.raises(CorruptError, match=r"half-.*reupload"):
        reopen(run).predict("north", X)
    assert reopen(run).verify().outcome == "mismatch"
    reopen(run).reupload("north")
    assert bits(run) == before
    assert reopen(run).predict("north", X)
    assert strays(run) == []


@damages
@pytest.mark.parametrize("name", ["server/initial.safetensors", "server/client-initial.safetensors"])
def test_damaged_first_weights_are_named(run: Path, damage: Damage, name: str) -> None:
    damage(run / name)
    with pytest.raises(CorruptError, match=r"initial.safetensors.*restore it"):
        reopen(run)


@pytest.mark.parametrize("damage", [remove, garble, empty, halve], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", ["server/server.db", "clients/north/client.db"])
def test_a_damaged_book_is_an_error_of_ours(run: Path, damage: Damage, name: str) -> None:
    damage(run / name)
    with pytest.raises(SplitWiperError) as error:
        fed = reopen(run)
        fed.rows("north")
        fed.unlearn("north", classes=["a"])
    assert str(error.value)


@pytest.mark.parametrize("text", ["", "not hex", "abc"])
def test_a_damaged_key_is_named(run: Path, text: str) -> None:
    (run / "clients/north/key").write_text(text, encoding="ascii")
    with pytest.raises(CorruptError, match=r"key.*restore"):
        reopen(run).learn({"north": rows("n", "ab")})


def test_a_lost_key_is_named(run: Path) -> None:
    (run / "clients/north/key").unlink()
    assert reopen(run).verify().outcome == "unverifiable"
    with pytest.raises(CorruptError, match=r"key.*restore"):
        reopen(run).learn({"north": rows("n", "ab")})


def test_every_damaged_file_leaves_status_readable(run: Path) -> None:
    """Status looks at databases alone; it goes on telling what there is while files are damaged."""
    for path in run.rglob("*.safetensors"):
        flip(path)
    assert status(run).model == "current"


def test_errors_of_files_are_one_family() -> None:
    assert issubclass(CorruptError, StoreError)
    assert issubclass(FormatError, StoreError)
    assert issubclass(StoreError, OSError)


def test_a_shard_that_is_replaced_before_it_is_opened_is_not_damaged(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client's upload may come between reading the manifest and opening its files."""
    fed = reopen(run)
    fed.submit("south", classes=["a"])
    server = fed._server
    compute, seen = server.compute, []

    def interrupted(shards: Any, **options: Any) -> Any:
        if not seen:
            seen.append(shards)
            reopen(run)._client("north").add(as_rows(rows("north", "ab", part=7), task=""))
            reopen(run)._client("north").sync()
        return compute(shards, **options)

    monkeypatch.setattr(server, "compute", interrupted)
    assert len(fed.settle()) == 1 and len(seen) == 1
    assert fed.verify().exact
