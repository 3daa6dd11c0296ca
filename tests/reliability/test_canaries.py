"""Erasure is real: after unlearning, no byte of any file of the run tells of the planted rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reliability import canaries
from reliability.canaries import CANARIES, CLASS, scan
from reliability.stage import config, query
from splitwiper import Federation, Halves
from splitwiper.store.database import Database

LEVELS = ("class", "sample", "client")
OWN = canaries.table(1, ["wren", "tern"] * 20)


@pytest.fixture(scope="module")
def halves() -> Halves:
    return canaries.cut()


def planted(path: Path, halves: Halves, slices: int) -> tuple[Federation, list[int]]:
    """A run in which north holds the canaries and nobody else does, and the canaries' ids."""
    fed = Federation(path, halves, config(slices))
    fed.learn({"north": OWN, "south": canaries.table(2, ["wren", "tern"] * 6)})
    ids = [number for number in fed.learn({"north": CANARIES}).added["north"].ids if number is not None]
    assert len(set(ids)) == len(CANARIES[1])
    return fed, ids


@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize("level", LEVELS)
def test_nothing_is_left_of_what_was_forgotten(tmp_path: Path, halves: Halves, level: str, slices: int) -> None:
    run = tmp_path / "run"
    fed, samples = planted(run, halves, slices)
    request: dict[str, dict[str, Any]] = {
        "class": {"classes": [CLASS]},
        "sample": {"samples": samples},
        "client": {"everything": True},
    }
    old = canaries.activations(canaries.half_of(run, "north", halves), CANARIES[0])
    before = canaries.digests(run)
    rows, names, ids = canaries.raw_rows(), canaries.names(), canaries.row_ids(samples)
    embedded = canaries.renderings(old, "old activations")

    # the scan finds everything that is there: rows, activations, the class, digests; ids are kept nowhere
    stored = rows | {what: raw for what, raw in embedded.items() if "bits" not in what}
    stored |= {what: names[what] for what in ("class in JSON", "its first letters in utf-8")}
    stored |= {what: raw for what, raw in canaries.of_digests(before).items() if what.startswith("digest")}
    assert stored.keys() - scan(run, stored).keys() == set()
    assert scan(run, ids) == {}

    receipt = fed.unlearn("north", **request[level])
    after = canaries.digests(run)
    erased = {file: value for file, value in before.items() if file not in after}
    kinds = {file.split("/")[-2] for file in erased}
    assert kinds >= {"shards", "models", "epochs", "slices", "half"}
    wanted = rows | names | ids | embedded | canaries.of_digests(erased)
    if level != "client":
        new = canaries.activations(canaries.half_of(run, "north", halves), CANARIES[0])
        wanted |= canaries.renderings(new, "new activations")
    assert scan(run, wanted) == {}
    receipt.save(run / "receipt.json")
    assert scan(run, wanted) == {}
    assert fed.verify(receipt).exact
    assert CLASS not in {label.name for label in fed.labels}


def test_the_scan_finds_every_rendering(tmp_path: Path, halves: Halves) -> None:
    """Each byte string that is looked for is found when it is there, in a file of its own among others."""
    run = tmp_path / "run"
    _, samples = planted(run, halves, 1)
    old = canaries.activations(canaries.half_of(run, "north", halves), CANARIES[0])
    wanted = (
        canaries.raw_rows() | canaries.names() | canaries.row_ids(samples) | canaries.renderings(old, "activations")
    )
    wanted |= canaries.of_digests(canaries.digests(run))
    (tmp_path / "empty").mkdir()
    for number, (what, raw) in enumerate(wanted.items()):
        assert len(raw) >= 4, what
        path = tmp_path / "empty" / "deep" / f"{number}.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\xa5" * number + raw + b"\x5a")
        assert list(scan(tmp_path / "empty", {what: raw})) == [what]
        path.unlink()


def test_receipts_and_ledger_never_name_classes(tmp_path: Path, halves: Halves) -> None:
    run = tmp_path / "run"
    fed, gone = planted(run, halves, 1)
    other = next(iter(fed.rows("north").keys() - set(gone)))
    receipts = [fed.unlearn("north", classes=[CLASS]), fed.unlearn("north", samples=[other])]
    receipts.append(fed.unlearn("north", everything=True))
    texts = [json.dumps(receipt.to_dict()) for receipt in receipts]
    for table in ("ledger", "tickets"):
        texts += [json.dumps(row, default=str) for row in query(run / "server/server.db", f"SELECT * FROM {table}")]
    assert len(texts) > 15
    for text in texts:
        assert not any(
            name in text for name in (CLASS, json.dumps(CLASS)[1:-1], "wren", "tern", *map(str, [other, *gone]))
        )


def test_a_deleted_secret_leaves_the_database(tmp_path: Path) -> None:
    """Deleted content is overwritten: without secure_delete this very scan finds it."""
    secret = {"secret": b"quetzal" * 6}
    for secure in (True, False):
        folder = tmp_path / str(secure)
        folder.mkdir()
        database = Database(folder / "database.db", "CREATE TABLE things (name TEXT);")
        database.create({})
        if not secure:
            database.db.execute("PRAGMA secure_delete = OFF")
        with database.change() as db:
            db.executemany("INSERT INTO things VALUES (?)", [("quetzal" * 6,)] * 300)
        assert scan(folder, secret)
        with database.change() as db:
            db.execute("DELETE FROM things")
        database.close()
        assert bool(scan(folder, secret)) is not secure
