from __future__ import annotations

import json
from pathlib import Path

import pytest

from splitwiper import Federation
from splitwiper.cli.predict import _csv, _headings


def test_predictions(call, call_json, place: Path, ward: Path) -> None:
    found = call_json("predict", ward, "north", place / "north-test.npz")
    assert len(found["predictions"]) == 12
    assert found["predictions"].count(1) == 4
    shown = call("predict", ward, "north", place / "north-test.npz").stdout
    assert shown.splitlines()[2].split() == ["0", str(found["predictions"][0])]


def test_probabilities(call, call_json, place: Path, ward: Path) -> None:
    found = call_json("predict", ward, "south", place / "south.csv", "--label", "kind", "--proba")
    assert [label["name"] for label in found["labels"]] == [1, 2, 3, "other"]
    assert sum(found["probabilities"][0]) == pytest.approx(1, abs=1e-5)
    shown = call("predict", ward, "south", place / "south.csv", "--label", "kind", "--proba").stdout
    assert "most likely" in shown
    assert "%" in shown


def test_a_tokenizer_is_for_texts(call, place: Path, ward: Path) -> None:
    words = ("predict", ward, "south", place / "south.csv", "--label", "kind", "--tokenizer", "t.json")
    assert "--tokenizer t.json is for a .csv file of texts" in call(*words, code=2).stderr


def test_predictions_to_files(call, place: Path, ward: Path, tmp_path: Path) -> None:
    words = ("predict", ward, "north", place / "north-test.npz", "--proba", "--out")
    assert "12 predictions written to" in call(*words, tmp_path / "p.csv").stdout
    lines = (tmp_path / "p.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "row,prediction,p(1),p(2),p(3),p(other)"
    assert len(lines) == 13
    call(*words, tmp_path / "p.json")
    assert len(json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))["probabilities"]) == 12
    assert "give a .csv or .json file" in call(*words, tmp_path / "p.txt", code=2).stderr
    assert "folder that exists" in call(*words, tmp_path / "no" / "p.csv", code=2).stderr


def test_labels_of_several_tasks_keep_their_task() -> None:
    labels = [{"task": "a", "name": 3}, {"task": "b", "name": 3}]
    found = {"labels": labels, "probabilities": [[0.5, 0.5]], "predictions": [3]}
    assert _headings(found) == ["a:3", "b:3"]
    assert _csv(found) == "row,prediction,p(a:3),p(b:3)\n0,3,0.5,0.5\n"


def test_inputs_that_do_not_fit(call, place: Path, ward: Path) -> None:
    said = call("predict", ward, "south", place / "south.csv", code=2).stderr
    assert "column 'kind': 'other' is not a number" in said
    assert "leave the column out (--label 'kind')" in said
    assert "Did you mean 'kind'" in call("predict", ward, "south", place / "south.csv", "--label", "kin", code=2).stderr


def test_the_whole_run_is_verified(call, call_json, ward: Path) -> None:
    found = call_json("verify", ward)
    assert found["exact"] is True
    assert [(check["what"], check["claim"]) for check in found["checks"]] == [
        ("server", "history"),
        ("client north", "history"),
        ("client south", "history"),
        ("ledger", "history"),
        ("server", "state"),
        ("client north", "rows"),
        ("client north", "state"),
        ("client south", "rows"),
        ("client south", "state"),
        ("server", "state"),
    ]
    shown = call("verify", ward).stdout
    assert "client north, client south and server were recomputed from the surviving data and are equal" in shown
    assert "rows gone: client north" in shown and "history: ledger" in shown


def test_status(call, call_json, ward: Path) -> None:
    found = call_json("status", ward)
    assert found["model"] == "current"
    assert [(c["name"], c["rows"]) for c in found["clients"]] == [("north", 36), ("south", 20)]
    shown = call("status", ward).stdout
    assert "on disk" in shown
    assert "Nothing is unfinished" in shown
    assert "…" not in shown
    rows = call_json("status", ward, "--client", "south")["rows"]
    assert {row["id"]: row["label"] for row in rows} == Federation(ward).rows("south")
    assert len(rows) == 20 and [row["label"] for row in rows].count("other") == 10
    assert "south holds 20 rows" in call("status", ward, "--client", "south").stdout
    assert "Did you mean 'south'" in call("status", ward, "--client", "soth", code=6).stderr


def test_status_needs_no_code_of_the_model(call, place: Path, ward: Path) -> None:
    settings = ward / "federation.toml"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace("splitwiper.models:mlp", "gone_for_good:net"), encoding="utf-8")
    assert "Nothing is unfinished" in call("status", ward).stdout
    call("status", ward, "--client", "north")
    assert "PYTHONPATH" in call("predict", ward, "north", place / "north-test.npz", code=2).stderr


def test_status_of_an_absent_client(call, ward: Path) -> None:
    (ward / "clients" / "north").rename(ward.parent / "away")
    assert "folder not here" in " ".join(call("status", ward).stdout.split())
    assert "is not here" in call("status", ward, "--client", "north", code=6).stderr
