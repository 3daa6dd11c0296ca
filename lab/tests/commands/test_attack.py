"""``splitwiper attack`` and ``splitwiper rekey``, and what ``learn`` and ``status`` say of hidden labels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CONFIG = """
seed = 3
model.factory = "splitwiper.models:digits_cnn"
data = {source = "digits", clients = 3, rows = 400}
server.epochs = 4
server.threads = 1
client.epochs = 2
client.threads = 1
client.masking = {mode = "duplicate", gamma = 2}
client.noise = {mechanism = "laplace", epsilon = 20.0, clip = 2.0, reading = "value", nonnegative = true}
"""
KEYS = {"attack", "perfect", "inclusive", "pair_f1", "sample_recovery", "labels_estimated"}


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory, call) -> Path:
    folder = tmp_path_factory.mktemp("hidden")
    (folder / "run.toml").write_text(CONFIG, encoding="utf-8")
    said = call("learn", folder / "run.toml", "--run", folder / "run").stdout
    assert "3 clients agreed on labels in" in said and "sealed messages" in said
    return folder / "run"


def test_attacks_are_listed_strongest_first(call, hidden: Path) -> None:
    found = json.loads(call("attack", hidden, "--quick", "--json").stdout)
    assert all(result.keys() >= KEYS for result in found)
    recovered = [r["sample_recovery"] for r in found if r["sample_recovery"] is not None]
    assert recovered == sorted(recovered, reverse=True) and recovered[0] == 1  # duplication hides nothing
    assert {r["attack"] for r in found} >= {"equal row counts", "nearest rows under other codes", "code means, BIRCH"}
    shown = call("attack", hidden, "--quick").stdout
    assert "strongest of" in shown and "recovers the true label of 100.0 % of the rows" in " ".join(shown.split())
    assert len(call("attack", hidden, "--quick", "--all").stdout) > len(shown)


def test_generations_are_compared_through_a_snapshot(call, hidden: Path, tmp_path: Path) -> None:
    label = json.loads(call("status", hidden, "--client", "north", "--json").stdout)["rows"][0]["label"]
    assert "shards kept in" in call("attack", hidden, "--keep", tmp_path / "before").stdout
    call("unlearn", hidden, "north", "--class", label)
    found = json.loads(call("attack", hidden, "--earlier", tmp_path / "before", "--quick", "--json").stdout)
    codes = next(r for r in found if r["attack"] == "codes that vanished")
    assert codes["scores"]["codes_recall"] == 1
    told = json.loads(call("status", hidden, "--json").stdout)
    assert "after 2 uploads" in next(c for c in told["clients"] if c["name"] == "north")["privacy"].replace("\xa0", " ")
    assert "Noise of north: each row of" in call("status", hidden).stdout


def test_inputs_are_rebuilt_as_pictures(call, hidden: Path, tmp_path: Path) -> None:
    found = json.loads(call("attack", hidden, "--quick", "--pictures", tmp_path / "p", "--json").stdout)
    assert any("psnr" in r["scores"] for r in found)
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in (tmp_path / "p").iterdir()) and any(
        (tmp_path / "p").iterdir()
    )


def test_bad_input(call, hidden: Path, tmp_path: Path) -> None:
    assert "no snapshot in" in call("attack", hidden, "--earlier", tmp_path, code=2).stderr
    assert "only keeps a snapshot" in call("attack", hidden, "--keep", "x", "--earlier", "y", code=2).stderr
    assert "no run" in call("attack", tmp_path / "nowhere", code=6).stderr


def test_rekey(call, hidden: Path) -> None:
    shown = call("rekey", hidden, "--label", "eleven").stdout
    assert "3 clients agreed on labels" in shown and "is current" in shown
    found = json.loads(call("rekey", hidden, "--json").stdout)
    assert found["agreement"]["messages"] >= 3


def test_rekey_is_for_hidden_labels(call, ward: Path) -> None:
    assert "labels are not hidden" in call("rekey", ward, code=2).stderr
