"""A small comparison of digits, and fixtures of tests that run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

HEAD = """
seed = 0

[data]
source = "digits"
clients = 3
rows = 150
forget = "three"
owner = "north"

[model]
factory = "splitwiper.models:digits_cnn"

[server]
epochs = 2
batch = 64
threads = 1

[client]
epochs = 1
threads = 1

[compare]
"""
SYSTEMS = """
[[compare.systems]]
kind = "splitwiper"

[[compare.systems]]
kind = "vanilla"
unlearning = ["retraining", "fine-tuning"]

[[compare.systems]]
kind = "u-shaped"

[[compare.systems]]
kind = "sisa"
shards = 2
"""
WAYS = [
    ("splitwiper", "splitwiper"),
    ("vanilla, interleaved", "retraining"),
    ("vanilla, interleaved", "fine-tuning"),
    ("u-shaped, interleaved", "retraining"),
    ("sisa, 2 shards", "sisa"),
]
TWO = 'systems = ["splitwiper", "vanilla"]\n'


def write(folder: Path, text: str, *, head: str = HEAD, name: str = "smoke") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(head + text, encoding="utf-8")
    return path


def lines_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "compare.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("smoke"), SYSTEMS)


@pytest.fixture(scope="module")
def compared(smoke: Path, call) -> tuple[Path, str]:
    """The folder with results, and what was printed; not to be changed."""
    out = smoke.parent / "out"
    return out, call("compare", smoke, "--out", out, "--commit", "abc", env={"COLUMNS": "80"}).stdout


@pytest.fixture
def nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_args: Any, **_named: Any) -> Any:
        raise AssertionError("computed anew")

    monkeypatch.setattr("splitwiper_lab.evaluation.comparison.sweeping.stage", never)
    monkeypatch.setattr("splitwiper_lab.evaluation.comparison.sweeping.compared", never)
