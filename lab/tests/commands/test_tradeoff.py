"""``splitwiper tradeoff`` on real digits: measured once, kept, and shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

WORDS = ("tradeoff", "digits", "digits_cnn", "--rows", 300, "--epochs", 2, "--clients", 3, "--quick")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, call) -> Path:
    out = tmp_path_factory.mktemp("swept") / "out"
    said = call(*WORDS, "--out", out, "--only", "plain", "--only", "duplicate, γ = 2", "--commit", "abc").stdout
    assert "plain labels" in said and "duplicate, γ = 2" in said and "Theorem 1's bound on posteriors fails" in said
    return out


def test_results_are_kept_with_what_they_were_measured_on(swept: Path) -> None:
    lines = [json.loads(line) for line in (swept / "tradeoff.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["values"]["setting"] for line in lines] == ["plain labels", "duplicate, γ = 2"]
    for line in lines:
        assert line["made"]["commit"] == "abc" and line["made"]["fingerprint"]["torch"] and line["about"]["rows"] == 300
        assert line["values"]["forgotten"] == 0 and line["values"]["vanished"] == 1
        assert {"attack", "perfect", "inclusive", "pair_f1", "sample_recovery"} <= line["values"]["attacks"][0].keys()
    plain, doubled = (line["values"] for line in lines)
    assert doubled["rows"] == 2 * plain["rows"] and doubled["outputs"] == 2 * plain["outputs"]
    assert 1.9 < doubled["sent"] / plain["sent"] < 2.5


def test_what_is_there_is_not_measured_again(swept: Path, call) -> None:
    before = (swept / "tradeoff.jsonl").read_bytes()
    found = json.loads(call(*WORDS, "--out", swept, "--only", "plain", "--json").stdout)
    assert [point["setting"] for point in found] == ["plain labels", "duplicate, γ = 2"]
    assert (swept / "tradeoff.jsonl").read_bytes() == before


def test_the_page_and_the_text_are_whole(swept: Path) -> None:
    page = (swept / "tradeoff.html").read_text(encoding="utf-8")
    assert page.count(" recovered</title>") == 2 and "Theorem 1 in numbers" in page and "<script" not in page
    text = (swept / "README.md").read_text(encoding="utf-8")
    assert "| duplicate, γ = 2 |" in text and "tradeoff.html" in text


def test_bad_input(tmp_path: Path, swept: Path, call) -> None:
    assert "is in no setting's name" in call(*WORDS, "--out", tmp_path, "--only", "nonsense", code=2).stderr
    (tmp_path / "tradeoff.jsonl").write_text("nonsense\n", encoding="utf-8")
    assert "line 1 is not a result" in call(*WORDS, "--out", tmp_path, "--only", "plain", code=2).stderr
    assert "no network" in call("tradeoff", "digits", "nonsense", "--out", tmp_path, code=2).stderr
