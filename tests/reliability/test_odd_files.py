"""Something else in place of a file, a folder or a record: a folder, a pipe, a link, a value of another kind.

Whatever it is, each command ends soon, with a verdict or with an error of ours.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reliability.stage import config, halves, ids_at, place_keys, reopen, rows, scratch
from splitwiper import Federation
from splitwiper.errors import CorruptError, SplitWiperError
from splitwiper.federation import status
from splitwiper.store.records import count, plain_name

DATA = {"north": rows("north", "aaabbb"), "south": rows("south", "bbaa")}
DATABASES = ("server/server.db", "clients/north/client.db")
Edit = Callable[[Path], None]


@pytest.fixture(scope="module")
def learned() -> Iterator[Path]:
    folder = scratch()
    place_keys(folder / "run")
    fed = Federation(folder / "run", halves(), config(slices=2))
    fed.learn(DATA)
    fed.unlearn("south", samples=ids_at(folder / "run", "south", DATA["south"], [0]))
    yield folder / "run"
    shutil.rmtree(folder)


@pytest.fixture
def run(learned: Path) -> Iterator[Path]:
    folder = scratch()
    shutil.copytree(learned, folder / "run", symlinks=True)
    yield folder / "run"
    shutil.rmtree(folder)


def outcomes(run: Path) -> dict[str, str]:
    """What each command comes to; an error that is not ours fails the test."""
    calls: dict[str, Callable[[], Any]] = {
        "status": lambda: status(run),
        "verify": lambda: reopen(run).verify(),
        "predict": lambda: reopen(run).predict("north", DATA["north"][0]),
        "unlearn": lambda: reopen(run).unlearn("north", samples=ids_at(run, "north", DATA["north"], [1])),
        "settle": lambda: reopen(run).settle(),
    }
    if not (run / "clients/north/key").is_file():
        del calls["unlearn"]  # the test itself needs the key to know an id
    found = {}
    for name, call in calls.items():
        try:
            found[name] = str(getattr(call(), "outcome", "done"))
        except SplitWiperError as problem:
            assert str(problem)
            found[name] = type(problem).__name__
    return found


def first(run: Path, pattern: str) -> Path:
    return sorted(run.glob(pattern))[0]


# --- something else in place of a file ----------------------------------------------------------------------


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def to_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def to_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


ERASED = ("clients/north/slices/*", "clients/north/half/*", "server/shards/*", "server/models/*", "server/epochs/*")
READ = ("clients/north/key", "server/key", "clients/north/config.toml", "server/config.toml", "federation.toml")
STARTS = ("clients/north/initial.safetensors", "server/initial.safetensors")


@pytest.mark.timeout(60)  # nothing waits for a pipe's other end
@pytest.mark.parametrize("edit", [to_folder, to_loop, to_pipe], ids=lambda f: f.__name__)
@pytest.mark.parametrize("pattern", [*ERASED, *READ, *STARTS, *DATABASES])
def test_something_else_in_place_of_a_file(run: Path, pattern: str, edit: Edit) -> None:
    edit(first(run, pattern))
    assert outcomes(run)["verify"] != "exact"


@pytest.mark.parametrize("pattern", ERASED)
def test_a_folder_with_something_in_it_is_never_erased(run: Path, pattern: str) -> None:
    path = first(run, pattern)
    to_folder(path)
    (path / "thesis.tex").touch()
    assert outcomes(run)["verify"] == "mismatch"
    assert (path / "thesis.tex").exists()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("beside", ["-journal", "-wal"])
def test_a_pipe_beside_a_book(run: Path, database: str, beside: str) -> None:
    os.mkfifo(run / f"{database}{beside}")
    assert outcomes(run)["verify"] != "exact"


@pytest.mark.parametrize(
    "folder",
    ["pending", *(f"clients/north/{n}" for n in ("slices", "checkpoints", "half", "outbox"))]
    + [f"server/{name}" for name in ("shards", "models", "epochs", "incoming")],
)
def test_a_file_in_place_of_a_folder(run: Path, folder: str) -> None:
    shutil.rmtree(run / folder)
    (run / folder).touch()
    outcomes(run)


@pytest.mark.parametrize("pattern", ERASED)
def test_a_link_is_not_mistaken_for_the_file(run: Path, tmp_path: Path, pattern: str) -> None:
    """Erasing it would leave the rows, or what knows them, where it leads to."""
    path = first(run, pattern)
    shutil.move(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert reopen(run).verify().outcome == "mismatch"
    with pytest.raises(CorruptError, match="is a link"):
        reopen(run).unlearn("north", everything=True)
    if "slices" not in pattern:  # the request stands, and is done once the link is gone
        path.unlink()
        shutil.move(tmp_path / "elsewhere", path)
        reopen(run).settle()
        assert reopen(run).verify().outcome == "exact"


@pytest.mark.parametrize("name", ["north", "north/full", "ghost", "a b\n", os.fsdecode(b"\xff\xfe")], ids=ascii)
def test_odd_marks(run: Path, name: str) -> None:
    (run / "pending" / name).mkdir(parents=True)
    outcomes(run)


@pytest.mark.parametrize("name", [".tmp-x", "server/.tmp-x", "server/incoming/shard-x", "clients/north/slices/x"])
def test_a_link_to_nowhere_is_no_obstacle(run: Path, name: str) -> None:
    (run / name).symlink_to("nowhere")
    reopen(run).settle()
    assert reopen(run).verify().outcome == "exact"


@pytest.mark.parametrize("folder", ["clients/north/slices", "server/shards"])
def test_a_stray_folder_is_removed_or_named(run: Path, folder: str) -> None:
    (run / folder / "stray").mkdir()
    reopen(run).settle()
    assert reopen(run).verify().outcome == "exact"
    (run / folder / "stray").mkdir()
    (run / folder / "stray" / "thesis.tex").touch()
    with pytest.raises(CorruptError, match="stray is not as SplitWiper left it"):
        reopen(run).settle()
    assert (run / folder / "stray" / "thesis.tex").exists()


@pytest.mark.parametrize("number", ["²", "9" * 40])
def test_odd_process_numbers(run: Path, number: str) -> None:
    (run / "server" / f".tmp-{number}-1-ab").touch()
    assert outcomes(run)["verify"] in ("exact", "unverifiable")
    reopen(run).settle()
    assert outcomes(run)["verify"] == "exact"


def test_what_settling_does_not_erase_is_named(run: Path) -> None:
    (run / "clients/north/.tmp-x").symlink_to("nowhere")
    reopen(run).settle()
    told = reopen(run).verify()
    assert told.outcome == "unverifiable" and "remove clients/north/.tmp-x" in told.reason


# --- odd records --------------------------------------------------------------------------------------------


def change(database: Path, sql: str) -> None:
    """Edit a database past its triggers."""
    with closing(sqlite3.connect(database)) as db:
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        db.execute(sql)
        for _, made in triggers:
            db.execute(made)
        db.commit()


LEASES = [
    "DELETE FROM lease",
    "UPDATE lease SET holder = 'garbage', purpose = 'x', since = 1, expires = 1",
    "UPDATE lease SET holder = x'ff00', purpose = 'x', since = 1, expires = 1",
    """UPDATE lease SET holder = '{"pid": 1}', purpose = 'x', since = 1, expires = 1""",
    """UPDATE lease SET holder = '{"pid": "x", "started": "", "place": ""}', purpose = 'x', since = 1, expires = 1""",
    """UPDATE lease SET holder = '{"pid": 1, "started": "", "place": "q"}', purpose = 'x', since = NULL""",
    """UPDATE lease SET holder = '{"pid": 1, "started": "", "place": "q"}', purpose = 'x', since = 'a'""",
    "UPDATE lease SET token = 'x'",
    "UPDATE lease SET token = 9223372036854775807",
]


@pytest.mark.parametrize("sql", LEASES)
@pytest.mark.parametrize("database", DATABASES)
def test_an_odd_lease_is_refused(run: Path, database: str, sql: str) -> None:
    change(run / database, sql)
    assert outcomes(run)["verify"] in ("mismatch", "CorruptError")


def test_a_lease_of_a_process_at_no_place_is_taken_over(run: Path) -> None:
    holder = '{"pid": 1, "started": "", "place": ""}'
    change(run / DATABASES[0], f"UPDATE lease SET holder = '{holder}', purpose = 'x', since = 1, expires = 9e12")
    assert status(run).work == "x was interrupted (process 1 on an unknown machine is gone)"
    assert outcomes(run)["verify"] == "exact"


UNSEALED = [
    ("server", "UPDATE model SET file = x'ff'"),
    ("server", "UPDATE model SET file = '../../../thesis.tex'"),
    ("server", "UPDATE model SET fingerprint = '[1'"),
    ("server", "UPDATE shards SET codebook = 'x'"),
    ("server", "UPDATE shards SET file = '../key'"),
    ("server", "UPDATE shards SET outputs = 1000000000000, codebook = 'x'"),
    ("server", "UPDATE meta SET value = '[1' WHERE key = 'seed'"),
    ("server", "UPDATE meta SET value = '[[1, 2]]' WHERE key = 'columns'"),
    ("server", "INSERT INTO board VALUES ('labels/x', 0, 'north', x'00')"),
    ("clients/north", "UPDATE half SET fingerprint = '[1'"),
    ("clients/north", "UPDATE half SET fingerprint = '{}'"),
    ("clients/north", "UPDATE half SET file = x'ff'"),
    ("clients/north", "UPDATE slices SET rows = 'x'"),
    ("clients/north", "UPDATE slices SET file = x'ff'"),
    ("clients/north", "UPDATE slices SET file = '../../../thesis.tex'"),
    ("clients/north", "UPDATE meta SET value = '[1' WHERE key = 'inputs'"),
    ("clients/north", "UPDATE meta SET value = '[]' WHERE key = 'inputs'"),
    ("clients/north", "UPDATE meta SET value = '[1' WHERE key = 'seed'"),
    ("clients/north", "UPDATE meta SET value = '[1' WHERE key = 'accepted_salt'"),
    ("clients/north", "INSERT INTO meta VALUES ('codebook_version', 'x')"),
]


@pytest.mark.parametrize(("side", "sql"), UNSEALED)
def test_odd_records_where_the_key_that_seals_them_is_gone(run: Path, side: str, sql: str) -> None:
    (run.parent / "thesis.tex").touch()
    change(next((run / side).glob("*.db")), sql)
    (run / side / "key").unlink()
    assert outcomes(run)["verify"] != "exact"
    assert (run.parent / "thesis.tex").exists() and (run / "server" / "config.toml").exists()


@pytest.mark.parametrize("name", [b"x", "", "..", "a/b", "/etc/passwd", "a\0", "x" * 300, 3, None])
def test_only_plain_names_are_joined_to_a_folder(name: object) -> None:
    with pytest.raises(CorruptError, match="names the file"):
        plain_name(name)


@pytest.mark.parametrize("value", [-1, 1.0, "1", b"1", None, True, 1 << 63])
def test_only_numbers_count(value: object) -> None:
    with pytest.raises(CorruptError, match="counts"):
        count(value)


# --- odd receipts, and a database that was replaced under an open run -------------------------------------------


def nested(folder: Path, receipt: dict[str, Any]) -> str:
    deep: Any = {}
    for _ in range(900):
        deep = {"x": deep}
    (folder / "deep.json").write_text(json.dumps({**receipt, "others": deep}), encoding="utf-8")
    return str(folder / "deep.json")


def test_odd_receipts(run: Path, tmp_path: Path) -> None:
    fed = reopen(run)
    good = fed.receipt(status(run).tickets[0].id)
    os.mkfifo(tmp_path / "pipe")
    for odd in (str(tmp_path), "x" * 6000, "\ud800", "a\0b", str(tmp_path / "pipe"), Path("/nowhere")):
        with pytest.raises(SplitWiperError):
            fed.verify(odd)
    assert fed.verify(nested(tmp_path, good.to_dict())).outcome == "mismatch"


@pytest.mark.parametrize("data", [b"garbage" * 1000, None], ids=["garbage", "an older copy"])
def test_an_open_run_sees_that_its_book_was_replaced(run: Path, data: bytes | None) -> None:
    old = (run / "server/server.db").read_bytes()
    fed = reopen(run)
    receipt = fed.unlearn("north", classes=["a"])
    assert fed.verify(receipt).outcome == "exact"
    (run / "server/new").write_bytes(old if data is None else data)
    (run / "server/new").replace(run / "server/server.db")
    assert fed.verify(receipt).outcome == "mismatch"
