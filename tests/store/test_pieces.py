"""Digests taken while bytes go by: whatever order they go by in, they are those of the file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from splitwiper.store import files, pieces
from splitwiper.store.pieces import Passing


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIECE", 100)
    monkeypatch.setattr(pieces, "PIECE", 100)


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 1000, 1037])
def test_one_go(tmp_path: Path, size: int) -> None:
    data, passing = random.Random(size).randbytes(size), Passing()
    (tmp_path / "f").write_bytes(data)
    for start in range(0, size, 37):
        passing.feed(start, data[start : start + 37])
    assert passing.digest(tmp_path / "f") == files.file_digest(tmp_path / "f")


def test_nothing_that_went_by_is_read_again(tmp_path: Path) -> None:
    data, passing = bytes(250), Passing()
    passing.feed(0, data)
    (tmp_path / "f").write_bytes(data)
    known = files.file_digest(tmp_path / "f")
    (tmp_path / "f").write_bytes(b"x" * 250)  # which nobody does: it shows where the digest comes from
    assert passing.digest(tmp_path / "f") == known != files.file_digest(tmp_path / "f")


def test_gaps_repetitions_and_ends_anywhere(tmp_path: Path) -> None:
    draw, path = random.Random(1), tmp_path / "f"
    for _ in range(300):
        data, passing = draw.randbytes(draw.randrange(1, 900)), Passing()
        path.write_bytes(data)
        for _ in range(draw.randrange(12)):
            start = draw.randrange(len(data) + 1)
            passing.feed(start, data[start : start + draw.randrange(300)])
        assert passing.digest(path) == files.file_digest(path)


def test_a_file_that_got_shorter_and_grew_otherwise(tmp_path: Path) -> None:
    path, passing = tmp_path / "f", Passing()
    passing.feed(0, b"a" * 350)
    path.write_bytes(b"a" * 120)
    assert passing.digest(path) == files.file_digest(path)
    passing.feed(120, b"b" * 330)
    path.write_bytes(b"a" * 120 + b"b" * 330)
    assert passing.digest(path) == files.file_digest(path)
