"""A small run made by the command line itself, and ways to call commands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from splitwiper.cli import app

CONFIG = """
seed = 3
[model]
factory = "splitwiper.models:mlp"
args = {inputs = 4, outputs = 3}
inputs = {x = "float32[4]"}
at = "stem"
head = "head"
[server]
epochs = 12
batch = 8
threads = 1
[client]
epochs = 4
batch = 8
threads = 1
[clients.north]
data = "north.npz"
test = "north-test.npz"
[clients.south]
data = "south.csv"
"""
Call = Callable[..., Result]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(scope="session")
def call() -> Call:
    """Run a command and return what came of it; a code may be demanded."""

    def run(*words: object, code: int = 0, **options: Any) -> Result:
        result = CliRunner().invoke(app, [str(word) for word in words], **options)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, f"{result.exit_code}: {result.output}"
        return result

    return run


@pytest.fixture(scope="session")
def call_json(call: Call) -> Callable[..., Any]:
    """Run a command with --json and return the object it printed."""

    def run(*words: object, code: int = 0) -> Any:
        result = call(*words, "--json", code=code)
        assert result.stderr == ""
        assert result.stdout.count("\n") == 1
        return json.loads(result.stdout)

    return run


def write_data(folder: Path) -> Path:
    """The configuration and the data files of two clients: north labels 1, 2 and 3, south labels 3 and 'other'."""
    draw = np.random.default_rng(0)
    places = ["1", "2", "3", "other"]

    def rows(names: list[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        noise = draw.normal(scale=0.1, size=(len(names), 4))
        return (noise + np.eye(4)[[places.index(name) for name in names]]).astype(np.float32)

    for file, size in (("north", 12), ("north-test", 4)):
        names = ["1", "2", "3"] * size
        np.savez(folder / f"{file}.npz", inputs=rows(names), labels=np.array(names, dtype=int))
    names = ["3", "other"] * 10
    lines = [",".join([*map(str, row), name]) for row, name in zip(rows(names), names, strict=True)]
    (folder / "south.csv").write_text("\n".join(["a,b,c,d,kind", *lines]) + "\n", encoding="utf-8")
    config = folder / "ward.toml"
    config.write_text(CONFIG, encoding="utf-8")
    return config


@pytest.fixture(scope="session")
def master(tmp_path_factory: pytest.TempPathFactory, call: Call) -> Path:
    """A folder with a configuration, data, and the run ``ward``; not to be changed."""
    folder = tmp_path_factory.mktemp("master")
    call("learn", write_data(folder), "--run", folder / "ward")
    return folder


@pytest.fixture
def place(master: Path, tmp_path: Path) -> Path:
    """A copy of the master's folder, to be changed at will."""
    return Path(shutil.copytree(master, tmp_path / "place"))


@pytest.fixture
def ward(place: Path) -> Path:
    """The run in it."""
    return place / "ward"
