from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from splitwiper import Federation
from splitwiper.cli import app
from splitwiper.cli.demo import _fresh


def test_the_demo_forgets_exactly_and_alone(call_json, call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = call_json("demo", "--seed", 5)

    assert found["forgotten_accuracy_before"] > 0.8
    assert found["forgotten_accuracy_after"] == 0.0
    assert found["retained_accuracy_before"] > 0.9
    assert found["retained_accuracy_after"] > 0.9
    assert found["requester_seconds"] > 0
    assert found["requester_bytes"] > 0
    assert found["others_seconds"] == 0
    assert found["others_bytes"] == 0
    assert found["exact"] is True
    assert found["outcome"] == "exact"
    assert found["seconds_total"] < 60
    assert found["run"] == "runs/demo"
    assert set(found["clients"]) == {"north", "south", "east", "west", "centre"}
    for name, client in found["clients"].items():
        assert client["learn"]["bytes_up"] > 0
        assert (client["rows_after"] < client["rows_before"]) == (name == "north")

    page = Path(found["report"]).read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "forgot class ‘three’" in page
    assert found["ticket"] in page

    # the run is an ordinary one: it opens without code, and every other command works on it
    assert "three" not in {label.name for label in Federation(found["run"]).labels}
    assert "Nothing is unfinished" in call("status", found["run"]).stdout
    result = call("demo", "--run", found["run"], code=2)
    assert "not an empty folder" in result.stderr
    assert "Traceback" not in result.output


def test_a_fresh_folder_is_found_and_nothing_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [str(_fresh(None)) for _ in range(3)] == ["runs/demo", "runs/demo-2", "runs/demo-3"]
    assert _fresh(tmp_path / "new") == tmp_path / "new"


def test_a_file_in_the_way_is_an_error(call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    assert "not an empty folder" in call("demo", "--run", tmp_path / "file", code=2).stderr
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_tables_and_report_of_a_small_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from splitwiper.cli import demo
    from splitwiper.config import ClientConfig, Config, ServerConfig

    whole = demo._config(0)
    small = Config(
        seed=0, model=whole.model, server=ServerConfig(epochs=1, threads=1), client=ClientConfig(epochs=1, threads=1)
    )
    monkeypatch.setattr(demo, "_config", lambda seed: small)
    result = CliRunner().invoke(app, ["demo", "--run", str(tmp_path / "d")])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    for words in ("forgotten: three", "retained: all others", "north", "centre", "server", "Exact:", "report.html"):
        assert words in result.stdout
    south = next(text for text in result.stdout.splitlines() if text.startswith("south"))
    assert south.split()[-2:] == ["0", "0"]
    assert "\x1b" not in result.stdout
    assert all(len(text) <= 80 for text in result.stdout.splitlines() if "  " in text and str(tmp_path) not in text)
    assert json.dumps("…") not in result.stdout
