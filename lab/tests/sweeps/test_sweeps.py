"""The engine of sweeps and its files: what is kept, read, resumed and refused, in this format and older ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from splitwiper.errors import DataError, TrainingError
from splitwiper_lab.sweeps import Cell, CellResult, append, append_line, machines, missing, read_results, sweep
from splitwiper_lab.sweeps.cells import FORMAT, comparison_cell, tradeoff_cell

ROOT = Path(__file__).parents[3]
CELLS = [Cell(condition, system, seed, "s") for condition in "ab" for seed in (0, 1) for system in "xy"]
MADE = {"fingerprint": {"torch": "2.9"}, "version": "0", "date": "2026-01-02", "commit": "abc"}


def values_of(cell: Cell) -> dict[str, Any]:
    return {"told": cell.title, "seed": cell.seed}


def measure(cells: Sequence[Cell]) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """A measurement of cells of one condition and seed; the third condition's cannot be trained."""
    assert len({(cell.condition, cell.seed) for cell in cells}) == 1
    for cell in cells:
        if cell.condition == "c":
            raise TrainingError("diverged")
        yield cell, values_of(cell)


def run(path: Path | None, todo: Sequence[Cell], **more: Any) -> list[CellResult]:
    return list(sweep(path, todo, measure, made=lambda cell: MADE, about={"title": "t"}, **more))


def test_a_sweep_is_resumed_where_it_was_killed(tmp_path: Path) -> None:
    path, whole = tmp_path / "lines.jsonl", tmp_path / "whole.jsonl"
    run(whole, CELLS)
    turns = iter([True] * 3)
    run(path, CELLS, go_on=lambda: next(turns, False))
    path.write_bytes(path.read_bytes()[:-20])  # killed while it wrote the last
    found = read_results(path)
    assert [one.cell for one in found] == CELLS[:1]
    run(path, missing(CELLS, found))
    assert sorted(path.read_bytes().splitlines()) == sorted(whole.read_bytes().splitlines())
    assert missing(CELLS, read_results(path)) == []
    assert [one.values for one in read_results(path)] == [values_of(one.cell) for one in read_results(path)]


def test_what_fails_is_told_after_everything_else_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    with pytest.raises(TrainingError, match="c, seed 0: diverged"):
        run(path, [Cell("c", "x", 0, "s"), *CELLS])
    assert [one.cell for one in read_results(path)] == CELLS


def test_processes_keep_what_one_keeps(tmp_path: Path) -> None:
    told: list[int] = []
    run(tmp_path / "two.jsonl", CELLS, jobs=2, progress=lambda what, done, of, **more: told.append(of))
    run(tmp_path / "one.jsonl", CELLS)
    one, two = (read_results(tmp_path / f"{name}.jsonl") for name in ("one", "two"))
    assert sorted(two, key=lambda result: CELLS.index(result.cell)) == one and set(told) == {len(CELLS)}


def test_a_line_says_its_format_and_everything_else(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    (result,) = run(path, CELLS[:1])
    line = json.loads(path.read_text(encoding="utf-8"))
    assert line["format"] == FORMAT and line["about"] == {"title": "t"} and line["made"] == MADE
    assert read_results(path) == [result]
    append(path, CellResult(CELLS[1], {"accuracy": float("nan"), "each": [1.0, float("inf")]}, MADE))
    assert read_results(path)[1].values == {"accuracy": None, "each": [1.0, None]}


def test_the_first_of_several_lines_counts(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    for number in (1, 2):
        append(path, CellResult(CELLS[0], {"number": number}, MADE))
    (found,) = read_results(path)
    assert found.values == {"number": 1}
    assert read_results(path, wanted=lambda cell: cell.system == "y") == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[1]", "line 2 is not a result"),
        ("null", "line 2 is not a result"),
        ("nonsense", "line 2 is not a result"),
        ("{}", "line 2 is not a result"),
        ('{"format": 2}', "of format 2, and this version reads up to 1"),
        ('{"format": 1, "condition": 3}', "condition is 3"),
        ('{"about": 1, "record": {}}', "line 2 is not a result"),
    ],
)
def test_damage_is_told_with_its_line(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    run(path, CELLS[:1])
    path.write_bytes(path.read_bytes() + line.encode() + b"\n")
    with pytest.raises(DataError, match=words):
        read_results(path)


def test_a_result_that_cannot_be_shown_is_told(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    run(path, CELLS[:2])
    with pytest.raises(DataError, match=r"lines\.jsonl, line 1 is not a result .*'accuracy'"):
        read_results(path, check=lambda result: result.values["accuracy"])


@pytest.mark.parametrize("text", [b"mine", b"\xff\xfe", b"# notes\nmore"])
def test_a_file_of_something_else_is_not_touched(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(text)
    with pytest.raises(DataError, match="is not a result"):
        read_results(path)
    with pytest.raises(DataError, match="is not a result"):
        append_line(path, {})
    assert path.read_bytes() == text


def test_a_last_line_without_its_end_counts(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    run(path, CELLS[:2])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    run(path, CELLS[2:3])
    assert [one.cell for one in read_results(path)] == CELLS[:3]


def _append(path: Path, name: str) -> None:
    for number in range(40):
        append_line(path, {"by": name, "number": number})


def test_two_writers_take_turns_at_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"cut', encoding="utf-8")
    with ThreadPoolExecutor(2) as writers:  # each opens the file itself, as processes do
        list(writers.map(lambda name: _append(path, name), "ab"))
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert sorted((line["by"], line["number"]) for line in lines) == [(name, n) for name in "ab" for n in range(40)]


# --- older forms ---------------------------------------------------------------------------------------------


RECORDED = sorted(
    path for folder in ("compare", "tradeoff", "reproduce") for path in (ROOT / "results" / folder).rglob("*.jsonl")
)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: str(path.relative_to(ROOT / "results")))
def test_every_recorded_result_is_read(path: Path) -> None:
    """Whatever was measured before there was a format is still read, line by line."""
    found = read_results(path)
    assert len(found) == len(path.read_bytes().splitlines()) > 0
    assert machines(found) and all(one.values and one.about and one.cell.settings for one in found)


def test_older_lines_are_the_cells_of_today(tmp_path: Path) -> None:
    about = {"title": "t", "source": "digits", "model": "cnn", "seed": 3}
    path = tmp_path / "lines.jsonl"
    record = {"system": "sisa", "unlearning": "sisa", "seed": 3}
    append_line(path, {"about": about, "record": record, "system": "digest", **MADE})
    append_line(path, {"about": about, "point": {"setting": "plain labels"}, **MADE})
    compared, hidden = read_results(path)
    assert compared.cell == comparison_cell(about, "sisa", "sisa", 3, "digest") and compared.values == record
    assert hidden.cell == tradeoff_cell(about, "plain labels") and hidden.made == MADE
    other = {**about, "seed": 4}
    assert tradeoff_cell(other, "plain labels").settings != hidden.cell.settings
