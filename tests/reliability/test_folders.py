"""Folders that are not runs, runs of other versions, and runs opened with something else than they were made with."""

from __future__ import annotations

import dataclasses
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest
import torch
from torch import nn

from reliability.stage import bits, config, halves, ids_at, reopen, rows, strays
from splitwiper import Config, Federation, split
from splitwiper.errors import ConfigError, DataError, FormatError, InputError, NotFoundError, SplitWiperError
from splitwiper.federation import status
from splitwiper.models import mlp
from splitwiper.store import files

DATA = {"north": rows("north", "aabb")}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    Federation(tmp_path / "run", halves(), config()).learn(DATA)
    return tmp_path / "run"


# --- not a run ----------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(NotFoundError, match="no run in"):
            status(path)
        with pytest.raises(NotFoundError, match="give halves to start one"):
            Federation(path)
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(InputError, match=r"not empty and not a run .*thesis.tex.*give another folder"):
        Federation(tmp_path, halves(), config())
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text", encoding="utf-8")
    with pytest.raises(InputError, match="is a file; give a folder"):
        Federation(tmp_path / "file", halves(), config())
    assert (tmp_path / "file").read_text(encoding="utf-8") == "text"


def test_an_empty_folder_becomes_a_run(tmp_path: Path) -> None:
    Federation(tmp_path, halves(), config()).learn(DATA)
    assert status(tmp_path).model == "current"


def test_a_foreign_file_in_a_run_is_left_alone(run: Path) -> None:
    """Only what the program itself wrote and no longer needs is ever erased."""
    for place in ("notes.txt", "clients/north/notes.txt", "server/notes.txt"):
        (run / place).write_text("mine", encoding="utf-8")
    fed = reopen(run)
    fed.unlearn("north", samples=ids_at(run, "north", DATA["north"], [0]))
    assert strays(run) == [f"stray {place}" for place in ("clients/north/notes.txt", "notes.txt", "server/notes.txt")]


# --- other versions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", ["server/server.db", "clients/north/client.db"])
def test_a_run_from_a_newer_version_is_refused_unchanged(run: Path, database: str) -> None:
    with closing(sqlite3.connect(run / database)) as db:
        db.execute("PRAGMA user_version = 99")
    before = (run / database).read_bytes()
    with pytest.raises(FormatError, match=r"newer SplitWiper .format 99.*upgrade"):
        reopen(run).learn(DATA)
    with pytest.raises(FormatError, match="format 99"):
        status(run)
    assert (run / database).read_bytes() == before


def test_a_database_of_another_program_is_refused(run: Path) -> None:
    with closing(sqlite3.connect(run / "server/server.db")) as db:
        db.execute("PRAGMA application_id = 7")
    with pytest.raises(FormatError, match="not a SplitWiper database"):
        reopen(run)


@pytest.mark.parametrize("text", ["seed = 'x'", "colour = 1", "[server]\nepoch = 3", "][", "\x00"])
def test_a_spoilt_configuration_is_named(run: Path, text: str) -> None:
    (run / "federation.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError):
        reopen(run)


def test_missing_parts_are_errors_of_ours(run: Path, tmp_path: Path) -> None:
    for part in ("server/config.toml", "server/initial.safetensors", "server/server.db", "clients/north/config.toml"):
        (run / part).rename(tmp_path / "part")
        with pytest.raises(SplitWiperError, match=Path(part).name):
            reopen(run).learn({"north": rows("north", "ab", part=1)})
        (tmp_path / "part").rename(run / part)
    assert reopen(run).verify().exact


# --- opened with something else -----------------------------------------------------------------------------


def test_another_model_is_refused(run: Path) -> None:
    before = bits(run)
    example = torch.zeros(1, 4)
    for other, message in (
        (split(mlp(4, 3, hidden=9, cut=4), at="stem", example=example), "server half does not fit"),
        (split(mlp(4, 3, hidden=6, cut=5), at="stem", example=example), "half does not fit"),
        (
            split(mlp(4, 3, hidden=6, cut=4), at="stem.0", example=example),
            "made with the cut at 'stem', not at 'stem.0'",
        ),
    ):
        with pytest.raises(InputError, match=message):
            Federation(run, other)
    assert bits(run) == before


def test_the_same_model_with_other_weights_changes_nothing(run: Path) -> None:
    before = bits(run)
    torch.manual_seed(1234)
    other = split(mlp(4, 3, hidden=6, cut=4), at="stem", example=torch.zeros(1, 4))
    fed = Federation(run, other)
    fed.learn(DATA)
    assert fed.verify().exact
    assert bits(run) == before


def test_another_configuration_is_refused(run: Path) -> None:
    with pytest.raises(ConfigError, match=r"seed is 3, given 4.*reopen it without a config"):
        Federation(run, halves(), dataclasses.replace(config(), seed=4))
    with pytest.raises(ConfigError, match=r"client.slices is 1, given 2"):
        Federation(run, halves(), config(slices=2))
    assert Federation(run, halves(), config()).verify().exact


def test_a_configuration_without_a_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not name its model"):
        Federation(tmp_path / "run", config=Config())
    assert not (tmp_path / "run").exists()


def test_a_row_that_does_not_fit_any_half(tmp_path: Path) -> None:
    """The first rows decide what rows look like; those the half cannot take do not."""
    net = nn.Sequential()
    net.add_module("stem", nn.Linear(4, 3))
    net.add_module("head", nn.Linear(3, 2))
    fed = Federation(tmp_path / "run", split(net, at="stem", example=torch.zeros(1, 4)), config())
    with pytest.raises(DataError, match="cannot take rows"):
        fed.learn({"north": (torch.zeros(2, 7), ["a", "b"])})
    fed.learn(DATA)
    assert fed.verify().exact


@pytest.mark.parametrize(
    ("table", "name", "side"),
    [("[client]", "epochs", "clients' part"), ("[server]", "epochs", "server's part"), ("", "seed", "server's part")],
)
def test_settings_that_were_edited_are_noticed(table: str, name: str, side: str, run: Path) -> None:
    path = run / "federation.toml"
    text = path.read_text(encoding="utf-8")
    start = text.index(f"{name} = ", text.index(table)) + len(f"{name} = ")
    end = text.index("\n", start)
    path.write_text(f"{text[:start]}{int(text[start:end]) + 1}{text[end:]}", encoding="utf-8")
    with pytest.raises(InputError, match=f"{side} of federation.toml is not what this run was made with"):
        Federation(run, halves())
    path.write_text(text, encoding="utf-8")
    assert Federation(run, halves()).verify().exact


@pytest.mark.parametrize("name", ["server.db", "federation.toml"])
def test_a_run_whose_making_was_interrupted_is_made_again_and_not_accused(tmp_path: Path, name: str) -> None:
    moments = [f"{kind}:{when}" for kind in ("write", "rename", "commit") for when in ("before", "after")]
    for number, moment in enumerate(moments):
        run = tmp_path / str(number)

        def interrupt(kind: str, path: Path, moment: str = moment) -> None:
            if kind == moment and path.name == name:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt), files.watch(interrupt):
            Federation(run, halves(), config())
        fed = Federation(run, halves(), config())
        fed.learn({"north": rows("north", "abc")})
        assert fed.verify().exact


def test_a_run_that_lost_its_configuration_is_not_made_anew(run: Path) -> None:
    """The clients' folders may be elsewhere; ledger, tickets and shards must not be erased for that."""
    (run / "federation.toml").unlink()
    shutil.rmtree(run / "clients")
    (run / "clients").mkdir()
    before = {path: path.read_bytes() for path in (run / "server").rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=r"federation\.toml is gone: restore"):
        Federation(run, halves(), config())
    assert {path: path.read_bytes() for path in (run / "server").rglob("*") if path.is_file()} == before
