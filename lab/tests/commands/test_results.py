"""``splitwiper results``: a page from whatever is there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "src" / "splitwiper_lab" / "experiments"


def test_without_results_there_is_a_page_that_says_so(tmp_path: Path, call, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = call("results", "--experiments", FOLDER, "--out", "pages/results.html").stdout
    assert "Nothing was measured yet at scale full" in said and "not measured yet" in said
    assert "No experiment was measured yet" in (tmp_path / "pages/results.html").read_text(encoding="utf-8")


def test_json_has_claims_and_coverage(tmp_path: Path, call, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = json.loads(call("results", "--experiments", FOLDER, "--scale", "smoke", "--json").stdout)
    assert [claim["verdict"] for claim in told["claims"]] == ["not measured yet"] * 4
    assert told["page"] == "results.html" and told["scale"] == "smoke" and told["readmes"] == []
    assert all(one["done"] == 0 < one["cells"] for one in told["experiments"])


def test_readmes_are_written_when_asked(tmp_path: Path, call, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(FOLDER, tmp_path / "experiments", ignore=shutil.ignore_patterns("README.md"))
    folder = ("--experiments", tmp_path / "experiments")
    call("results", *folder)
    assert not list(tmp_path.glob("experiments/*/README.md"))
    assert "no results of scale full" in call("results", "--readmes", *folder, code=2).stderr
    assert not list(tmp_path.glob("experiments/*/README.md"))
    measured = tmp_path / "results" / "reproduce" / "full"
    measured.mkdir(parents=True)
    for name in ("consensus", "kmeans"):
        shutil.copy(Path(__file__).parents[3] / "results" / "reproduce" / "full" / f"{name}.jsonl", measured)
    told = json.loads(call("results", "--readmes", "--json", *folder).stdout)
    assert len(told["readmes"]) == len(list(tmp_path.glob("experiments/*/README.md"))) == len(told["experiments"])
    assert json.loads(call("results", "--readmes", "--json", *folder).stdout)["readmes"] == []


def test_verdicts_are_of_the_results_that_are_named(tmp_path: Path, call, monkeypatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])  # where results of other commands lie
    (tmp_path / "mine").mkdir()
    for more in (("--scale", "cpu"), ("--results", tmp_path / "mine")):
        told = json.loads(call("results", *more, "--out", tmp_path / "page.html", "--json").stdout)
        assert {claim["verdict"] for claim in told["claims"]} == {"not measured yet"}


def test_bad_input(tmp_path: Path, call, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "there is no scale 'huge'" in call("results", "--scale", "huge", code=2).stderr
    for option in ("--results", "--tradeoff", "--compare"):
        assert "is not there" in call("results", option, tmp_path / "nowhere", code=6).stderr
    assert "there are no experiments" in call("results", "--experiments", tmp_path, code=6).stderr
    (tmp_path / "c.jsonl").write_text("nonsense\n", encoding="utf-8")
    said = call("results", "--experiments", FOLDER, "--compare", tmp_path / "c.jsonl", code=2).stderr
    assert "c.jsonl, line 1" in said.replace("\n", " ")
