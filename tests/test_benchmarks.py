"""Benchmarks run, keep their results as JSON lines, and the page is written from those alone. No timing is judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warm

ROOT = Path(__file__).parent.parent
SUITE = sorted(path.stem for path in (ROOT / "benchmarks" / "suite").glob("[!_]*.py"))
LONG = ("audit", "callers", "checks", "clients", "masking", "memory", "service")
"""They take ten seconds and more, quick as they are."""
JUDGED = ("dishonest",)
"""They say who notices what, which must come out the same anywhere."""
FIELDS = {"name", "title", "quick", "parameters", "values", "checks", "hardware", "versions", "commit", "date"}


def bench(*arguments: str | Path, code: int = 0) -> str:
    """What the command prints."""
    done = warm.run(["-m", "benchmarks", *arguments], cwd=ROOT, env={**os.environ, "PYTHONPATH": "src"})
    assert done.returncode == code, done.stderr
    return done.stdout


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.share(len(SUITE) - len(LONG))  # one a day
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.soak) if n in LONG else n for n in SUITE])
def test_a_benchmark_keeps_what_it_measured(tmp_path: Path, name: str) -> None:
    said = bench(name, "--quick", "--out", tmp_path)
    kept = lines(tmp_path, name)
    assert kept
    for record in kept:
        assert record.keys() == FIELDS
        assert (record["name"], record["quick"]) == (name, True)
        assert record["parameters"] and record["values"]
        assert record["hardware"].keys() == {"cpu", "cores", "memory_gb", "gpu"}
        assert record["versions"].keys() == {"python", "torch", "numpy", "splitwiper"}
        assert record["commit"].keys() == {"hash", "dirty"}
        assert record["date"].endswith("+00:00")
        for check in record["checks"]:
            assert check.keys() == {"what", "target", "measured", "met"}
            assert check["measured"] in said
            assert check["met"] or name not in JUDGED, check["measured"]
            assert check["measured"] in (tmp_path / "README.md").read_text(encoding="utf-8")
    again = (tmp_path / "README.md").read_bytes()
    (tmp_path / "README.md").unlink()
    bench("table", "--out", tmp_path)
    assert (tmp_path / "README.md").read_bytes() == again


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_dishonest_server(tmp_path: Path) -> None:
    bench("dishonest", "--out", tmp_path)
    kept = lines(tmp_path, "dishonest")
    wrong = {record["parameters"]["kind"]: record["values"]["wrong"] for record in kept}
    assert len(wrong) > 30 and not any(wrong.values()), wrong
    caught = {record["parameters"]["kind"]: record["values"]["caught_by"] for record in kept}
    assert [kind for kind, by in caught.items() if not by] == [
        "honest",
        "another model, and no download",
        "keeps countersigned heads back",
        "keeps a copy",
    ]


def test_the_probability_that_a_liar_is_caught_is_measured(tmp_path: Path) -> None:
    bench("audit", "--quick", "--only", "detection", "--out", tmp_path)
    (kept,) = lines(tmp_path, "audit")
    values, draws = kept["values"], kept["parameters"]["draws"]
    assert values["formula"] == {"1": 0.25, "2": 0.5}
    assert 0 < values["caught"]["2"] < draws  # by chance, this is wrong twice in a million runs


def record(**other: Any) -> dict[str, Any]:
    check = {"what": "speed", "target": "≥ 0.95", "measured": "0.97", "met": True}
    return {
        "name": "cache",
        "title": "An epoch.",
        "quick": False,
        "parameters": {},
        "values": {},
        "checks": [check, {**check, "measured": "0.12", "met": False}],
        "hardware": {"cpu": "Abacus", "cores": 1, "memory_gb": 8.0, "gpu": None},
        "versions": {"python": "3.12", "torch": "2.11", "numpy": "2.0", "splitwiper": "0.1.0"},
        "commit": {"hash": "0123456789", "dirty": True},
        "date": "2026-02-03T04:05:06+00:00",
        **other,
    }


def test_the_page_says_what_the_lines_say(tmp_path: Path) -> None:
    other = record(name="gpu", commit={"hash": None, "dirty": None}, quick=True)
    (tmp_path / "cache.jsonl").write_text(json.dumps(record()) + "\n", encoding="utf-8")
    (tmp_path / "gpu.jsonl").write_text(json.dumps(other) + "\n", encoding="utf-8")
    bench("table", "--out", tmp_path)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line[:2] == "| "][1:]
    assert text.count("## Abacus, 1 core, 8 GB, torch 2.11\n") == 1
    assert rows[:2] == [
        "| cache | speed | ≥ 0.95 | 0.97 | yes | 0123456 with changes, 2026-02-03 |",
        "| cache | speed | ≥ 0.95 | 0.12 | **no** | 0123456 with changes, 2026-02-03 |",
    ]
    assert rows[2].endswith("| 2026-02-03 (quick: not a measurement) |")


def test_the_page_kept_here_is_the_one_its_lines_make(tmp_path: Path) -> None:
    kept = ROOT / "results" / "benchmarks"
    for path in kept.glob("*.jsonl"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
        assert not any(line["quick"] for line in lines(kept, path.stem))
    if not list(tmp_path.iterdir()):
        pytest.skip("nothing was measured yet")
    bench("table", "--out", tmp_path)
    assert (kept / "README.md").read_bytes() == (tmp_path / "README.md").read_bytes()


def test_every_benchmark_is_listed() -> None:
    """Started as people start it, without the package being installed."""
    command = [sys.executable, "-m", "benchmarks", "--list"]
    environment = {**os.environ, "PYTHONPATH": "src"}
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    listed = [line.split()[0] for line in said.splitlines()]
    assert {"cache", "clients", "memory"} <= set(listed)
    assert listed == SUITE


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    assert "'cash'" in bench("cash", "--out", tmp_path, code=2)
    assert not list(tmp_path.iterdir())


def test_a_part_is_measured_anew_and_the_others_stay(tmp_path: Path) -> None:
    bench("accuracy", "--quick", "--out", tmp_path)
    (one,) = lines(tmp_path, "accuracy")
    other = {**one, "parameters": {"model": "another"}}
    (tmp_path / "accuracy.jsonl").write_text("".join(json.dumps(r) + "\n" for r in (other, one)), encoding="utf-8")
    bench("accuracy", "--quick", "--only", "vgg", "--out", tmp_path)
    kept = lines(tmp_path, "accuracy")
    assert [r["parameters"] for r in kept] == [other["parameters"], one["parameters"]]
    assert kept[0] == other and kept[1]["date"] >= one["date"]
