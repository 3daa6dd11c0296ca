"""``splitwiper compare`` at every level, on own data, and with membership inference."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from commands.comparing import HEAD, TWO, lines_of, write


def test_a_client_that_leaves_has_no_accuracy(tmp_path: Path, call, call_json) -> None:
    config = write(tmp_path, 'level = "client"\n' + TWO)
    found = call_json("compare", config, "--out", tmp_path)
    assert all(one["forgotten"]["mean"] is None and one["forgotten_learned"]["count"] == 1 for one in found)
    assert [one["took_part"] for one in found] == [[1, 3], [2, 3]] and all(one["exact"] for one in found)
    assert found[0]["others_bytes"]["mean"] == 0 and found[0]["share_of_vanilla"][0]["mean"] is None
    shown = call("compare", config, "--out", tmp_path).stdout
    assert next(line for line in shown.splitlines() if line.startswith("splitwiper")).split()[2] == "–"
    first = next(
        line for line in (tmp_path / "compare.md").read_text(encoding="utf-8").splitlines() if "| splitw" in line
    )
    assert first.split("|")[4].strip() == "–"


def test_some_rows_and_masked_labels(tmp_path: Path, call_json) -> None:
    text = """
level = "sample"
delta = 0.5

[[compare.systems]]
kind = "splitwiper"
masking = {mode = "partition", gamma = 2}
"""
    (found,) = call_json("compare", write(tmp_path, text), "--out", tmp_path)
    assert found["system"] == "splitwiper+" and found["exact"] and found["others_seconds"]["mean"] == 0
    assert found["forgotten"]["mean"] is not None
    assert lines_of(tmp_path)[0]["about"]["delta"] == 0.5


OWN = """
seed = 3

[model]
factory = "splitwiper.models:mlp"
args = {inputs = 4, outputs = 4}
inputs = {x = "float32[4]"}
at = "stem"
head = "head"

[server]
epochs = 2
batch = 8
threads = 1

[client]
epochs = 1
batch = 8
threads = 1
"""
HELD = {"north": (0, 1, 2), "south": (2, 3), "west": (3, 2)}


def own_data(folder: Path, *, tested: tuple[str, ...] = tuple(HELD), rows: int = 12, twice: int = 0) -> str:
    """Files of three clients, and the head of a configuration that names them. Nobody but north holds 0 and 1."""
    draw, head = np.random.default_rng(0), OWN
    for name, labels in HELD.items():
        for file, each in ((name, rows), (f"{name}-test", 4)):
            held = np.repeat(labels, each)
            inputs = (np.eye(4)[held] + draw.normal(scale=0.1, size=(len(held), 4))).astype(np.float32)
            order = [*draw.permutation(len(held)), *range(rows, rows + twice if file == name else rows)]
            np.savez(folder / f"{file}.npz", inputs=inputs[order], labels=held[order])
        head += f'\n[clients.{name}]\ndata = "{name}.npz"\n' + (f'test = "{name}-test.npz"\n' if name in tested else "")
    return head + "\n[compare]\n" + TWO


def test_own_data(tmp_path: Path, call_json) -> None:
    config = write(tmp_path, 'forget = 1\nowner = "north"\n', head=own_data(tmp_path))
    mine, vanilla = call_json("compare", config, "--out", tmp_path)
    assert mine["exact"] and mine["took_part"] == [1, 3] and mine["others_bytes"]["mean"] == 0
    assert mine["forgotten"]["mean"] == vanilla["forgotten"]["mean"] == 0
    assert vanilla["took_part"] == [3, 3] and vanilla["others_bytes"]["mean"] > 0
    about = lines_of(tmp_path)[0]["about"]
    assert (about["forgets"], about["clients"], about["rows"]) == ("1 at north", 3, 84)
    assert lines_of(tmp_path)[0]["values"]["requester"] == "north"


def test_own_data_needs_a_label_its_owner_and_test_rows(tmp_path: Path, call) -> None:
    head = own_data(tmp_path)
    for text in ("", "forget = 1\n", 'owner = "north"\n'):
        problem = call("compare", write(tmp_path, text, head=head), code=2).stderr
        assert "smoke.toml: compare.forget and compare.owner are missing: which label, and whose?" in problem
    for text, said in (
        ('forget = 1\nowner = "nrth"\n', "compare.owner = 'nrth' is not a client. Did you mean 'north'?"),
        ('forget = 3\nowner = "north"\n', "client 'north' has no rows of class 3. It has 0, 1, 2."),
    ):
        assert said in call("compare", write(tmp_path, text, head=head), code=2).stderr
    untested = write(tmp_path, 'forget = 1\nowner = "north"\n', head=own_data(tmp_path, tested=()))
    assert (
        "no client has test data, so nothing can be compared; name test files"
        in call("compare", untested, code=2).stderr
    )


def test_own_data_and_a_seed_give_the_same_figures(tmp_path: Path, call_json) -> None:
    config = write(tmp_path, 'forget = 1\nowner = "north"\n', head=own_data(tmp_path))
    once, again = (call_json("compare", config)[0] for _ in range(2))
    for name in ("retained", "forgotten_learned", "requester_bytes"):
        assert once[name] == again[name]


def test_label_zero_can_be_forgotten(tmp_path: Path, call_json) -> None:
    config = write(tmp_path, 'forget = 0\nowner = "north"\n', head=own_data(tmp_path))
    assert call_json("compare", config)[0]["exact"]


def test_rows_that_occur_twice(tmp_path: Path, call_json) -> None:
    config = write(tmp_path, 'forget = 1\nowner = "north"\nlevel = "sample"\n', head=own_data(tmp_path, twice=5))
    assert call_json("compare", config)[0]["exact"]


def test_nothing_left_to_test_is_shown_as_such(tmp_path: Path, call) -> None:
    head = own_data(tmp_path, tested=("north",))
    shown = call("compare", write(tmp_path, 'forget = 1\nowner = "north"\nlevel = "client"\n', head=head)).stdout
    assert "nan" not in shown


def test_membership_inference_is_shown(tmp_path: Path, call, call_json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("splitwiper_lab.attacks.membership.classifier"), "_TREES", 10)
    monkeypatch.setattr(import_module("splitwiper_lab.attacks.membership.label_only"), "REPEATS", 2)
    text = 'membership = {shadow = 0.4, shadows = 2}\nsystems = ["splitwiper"]\n'
    words = ("compare", write(tmp_path, text, head=HEAD.replace("rows = 150", "rows = 300")), "--out", tmp_path)
    shown = call(*words).stdout
    assert "Equal to that model is the goal; less is not better." in shown
    (one,) = call_json(*words)
    assert [m["attack"] for m in one["membership"]] == ["two models", "labels only", "loss before", "loss after"]
    for m in one["membership"]:
        assert m["knows"] == "full labels, same tasks" and m["hit_rate"]["count"] == 1
        assert m["interval"][0] <= m["auc"]["mean"] <= m["interval"][1]
        if m["attack"] != "loss before":
            assert m["verdict"] == "equal" and m["difference"]["mean"] == 0
    page = (tmp_path / "compare.md").read_text(encoding="utf-8")
    assert "## Membership inference against what was forgotten" in page and page.count("| equal |") == 3
    assert lines_of(tmp_path)[0]["about"]["membership"]["shadow"] == 0.4


def test_membership_inference_of_a_client_that_leaves_is_refused(tmp_path: Path, call) -> None:
    config = write(tmp_path, 'level = "client"\nmembership = {shadow = 0.4}\n' + TWO)
    assert "a client that leaves has no model to ask; take class or sample" in call("compare", config, code=2).stderr


def test_membership_inference_needs_test_rows_of_the_owner(tmp_path: Path, call) -> None:
    head = own_data(tmp_path, tested=("south",), rows=40)
    config = write(tmp_path, 'forget = 1\nowner = "north"\nmembership = {shadow = 0.4}\n', head=head)
    assert "north" in call("compare", config, code=2).stderr
