"""``splitwiper compare`` on real digits and on own data: what it prints and keeps, and what it says to bad input."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from splitwiper.errors import ConfigError
from splitwiper.evaluation.comparison import read_comparison

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

    monkeypatch.setattr("splitwiper.evaluation.comparison.stage", never)
    monkeypatch.setattr("splitwiper.evaluation.comparison.compared", never)


def test_one_object_for_each_system_and_way(compared: tuple[Path, str], smoke: Path, call_json) -> None:
    found = call_json("compare", smoke, "--out", compared[0])
    assert [(one["system"], one["unlearning"]) for one in found] == WAYS
    for one in found:
        assert one["seeds"] == 1 and one["took_part"][1] == 3 and one["membership"] == []
        assert 0 <= one["retained"]["mean"] <= 1 and one["retained"]["deviation"] is None
        assert one["server_seconds"]["mean"] > 0
    assert [one["exact"] for one in found] == [True, True, False, True, True]
    assert [one["took_part"][0] for one in found] == [1, 3, 3, 3, 0]
    assert [one["away"] for one in found] == [True, False, False, False, True]


def test_splitwiper_costs_the_others_nothing(compared: tuple[Path, str], smoke: Path, call_json) -> None:
    mine, vanilla, *_ = call_json("compare", smoke, "--out", compared[0])
    assert mine["others_seconds"]["mean"] == mine["others_sending"]["mean"] == mine["others_bytes"]["mean"] == 0
    assert vanilla["others_seconds"]["mean"] > 0 and vanilla["others_bytes"]["mean"] > 0
    assert mine["forgotten"]["mean"] == 0
    assert mine["requester_bytes"]["mean"] == pytest.approx(vanilla["requester_bytes"]["mean"] / 2 / 2, rel=0.01)
    assert mine["requester_sending"]["mean"] == pytest.approx(8 * mine["requester_bytes"]["mean"] / 100e6)
    record = lines_of(compared[0])[0]["record"]
    for other in ("east", "south"):
        assert not any(record["unlearned"]["spent"][other].values())
        assert not any(record["unlearned"]["preparing"][other].values())
    assert record["exact"] and record["proof"] == "recomputed, bit for bit"
    assert record["away"] == {"client": "south", "went_on": True, "said": ""}


def test_tables_for_people(compared: tuple[Path, str]) -> None:
    out, said = compared
    table, prose = said.split("\n\n", 1)
    assert all(len(line) <= 80 for line in table.splitlines())
    assert next(line for line in table.splitlines() if line.startswith("splitwiper")).split()[-3:] == [
        "0",
        "1/3",
        "verified",
    ]
    assert "splitwiper: the requester spends" in prose and "sending at 100 Mbit/s" in prose
    assert f"Results: {out / 'compare.jsonl'}" in prose
    text = (out / "compare.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| system")]
    assert len(rows) == 2 * len(WAYS) and {row.count("|") for row in rows} == {10, 17}
    assert "| 0 + 0 | 1 of 3 | goes on | verified |" in rows[0] and "| 3 of 3 | stops | no |" in rows[2]
    assert "forgets three at north" in text and "±" not in rows[0]


def test_results_are_kept_with_what_they_were_measured_on(compared: tuple[Path, str]) -> None:
    found = lines_of(compared[0])
    assert [(line["record"]["system"], line["record"]["unlearning"]) for line in found] == WAYS
    for line in found:
        assert line["commit"] == "abc" and line["fingerprint"]["torch"] and line["date"] and line["version"]
        assert (line["about"]["rows"], line["about"]["M"], line["about"]["N"]) == (150, 2, 1)
        assert (line["about"]["title"], line["about"]["level"]) == ("smoke", "class")


def test_what_is_there_is_not_computed_again(
    compared: tuple[Path, str], smoke: Path, call, nothing_is_computed: None
) -> None:
    out, said = compared
    before = {name: (out / name).read_bytes() for name in ("compare.jsonl", "compare.md")}
    assert call("compare", smoke, "--out", out, env={"COLUMNS": "80"}).stdout == said
    assert {name: (out / name).read_bytes() for name in before} == before
    with pytest.raises(AssertionError, match="computed anew"):
        call("compare", smoke, "--out", out, "--seeds", 2)
    with pytest.raises(AssertionError, match="computed anew"):
        call("compare", smoke)


def test_only_some_systems(tmp_path: Path, call, call_json, monkeypatch: pytest.MonkeyPatch) -> None:
    config, out = write(tmp_path, SYSTEMS), tmp_path / "out"
    assert [one["system"] for one in call_json("compare", config, "--out", out, "--only", "splitwiper")] == [WAYS[0][0]]
    assert len(lines_of(out)) == 1
    monkeypatch.setattr("splitwiper.evaluation.comparison.running._ours", None)  # what is there is not missed
    found = call_json("compare", config, "--out", out, "--only", "splitwiper", "--only", "sisa")
    assert [one["system"] for one in found] == [WAYS[0][0], WAYS[4][0]]
    assert found[0]["share_of_vanilla"][0]["mean"] is None
    assert [line["record"]["kind"] for line in lines_of(out)] == ["splitwiper", "sisa"]
    problem = call("compare", config, "--out", out, "--only", "nonsense", code=2).stderr
    assert "--only nonsense is in no system's name" in problem and "u-shaped, interleaved" in problem


def test_more_seeds_give_deviations(compared: tuple[Path, str], smoke: Path, call, call_json, tmp_path: Path) -> None:
    first = (compared[0] / "compare.jsonl").read_text(encoding="utf-8")
    (tmp_path / "compare.jsonl").write_text(first, encoding="utf-8")
    words = ("compare", smoke, "--out", tmp_path, "--only", "splitwiper", "--only", "vanilla")
    found = call_json(*words, "--seeds", 2)
    assert (tmp_path / "compare.jsonl").read_text(encoding="utf-8").startswith(first)
    assert [line["record"]["seed"] for line in lines_of(tmp_path)] == [0] * 5 + [1] * 3
    for one in found:
        assert one["seeds"] == one["retained"]["count"] == 2 and one["retained"]["deviation"] is not None
        assert one["others_bytes"]["deviation"] is not None
    text = (tmp_path / "compare.md").read_text(encoding="utf-8")
    assert "| 0 ± 0 + 0 ± 0 | 1 of 3 |" in text and text.count(" ± ") > 20
    assert "±" in call(*words, "--seeds", 2).stdout
    again = call_json(*words)  # one seed again: the other is left out
    assert all(one["seeds"] == 1 and one["retained"]["deviation"] is None for one in again)


def test_other_settings_have_results_of_their_own(tmp_path: Path, call_json) -> None:
    words = ("--out", tmp_path / "out", "--only", "splitwiper")

    def measured(text: str = TWO, *, head: str = HEAD) -> dict[str, Any]:
        (found,) = call_json("compare", write(tmp_path, text, head=head), *words)
        return found

    first = measured()
    others = [
        (TWO, HEAD.replace("epochs = 2", "epochs = 1")),
        (TWO, HEAD.replace('"three"', '"four"')),
        ('level = "client"\n' + TWO, HEAD),
    ]
    for number, (text, head) in enumerate(others):
        assert measured(text, head=head)["seeds"] == 1
        assert len(lines_of(tmp_path / "out")) == 2 + number
    assert len({json.dumps(line["about"]) for line in lines_of(tmp_path / "out")}) == 1 + len(others)
    assert measured() == first and len(lines_of(tmp_path / "out")) == 1 + len(others)


@pytest.mark.parametrize(
    ("text", "head"),
    [
        pytest.param('systems = [{kind = "vanilla", aggregate = "mean"}]', HEAD, id="aggregation"),
        pytest.param('systems = [{kind = "vanilla", start = "scratch"}]', HEAD, id="start"),
        pytest.param(
            'systems = [{kind = "vanilla", unlearning = ["retraining", {method = "fine-tuning", epochs = 1}]}]',
            HEAD,
            id="epochs of a way",
        ),
        pytest.param('absent = "east"\nsystems = ["vanilla"]', HEAD, id="who is away"),
        pytest.param(
            'systems = ["vanilla"]', HEAD.replace("clients = 3", 'clients = 3\npartition = "disjoint"'), id="partition"
        ),
    ],
)
def test_whatever_changes_results_keeps_them_apart(
    compared: tuple[Path, str], call, tmp_path: Path, text: str, head: str
) -> None:
    (tmp_path / "compare.jsonl").write_bytes((compared[0] / "compare.jsonl").read_bytes())
    call("compare", write(tmp_path, text, head=head), "--out", tmp_path)
    assert len(lines_of(tmp_path)) > len(WAYS)


def test_another_codebook_is_another_system(call, tmp_path: Path) -> None:
    for gamma in (2, 3):
        text = f'systems = [{{kind = "splitwiper", masking = {{mode = "duplicate", gamma = {gamma}}}}}]'
        call("compare", write(tmp_path, text), "--out", tmp_path)
    once, again = (line["record"]["learned"]["spent"]["north"]["bytes_up"] for line in lines_of(tmp_path))
    assert again == pytest.approx(1.5 * once, rel=0.1)


def test_ways_that_were_taken_out_are_not_shown(
    compared: tuple[Path, str], call_json, tmp_path: Path, nothing_is_computed: None
) -> None:
    (tmp_path / "compare.jsonl").write_bytes((compared[0] / "compare.jsonl").read_bytes())
    found = call_json("compare", write(tmp_path, 'systems = ["vanilla"]'), "--out", tmp_path)
    assert [one["unlearning"] for one in found] == ["retraining"]


def test_a_last_line_cut_short_is_computed_again(compared: tuple[Path, str], smoke: Path, call, tmp_path: Path) -> None:
    """A run that was killed while it wrote is gone on with."""
    path = tmp_path / "compare.jsonl"
    whole = (compared[0] / "compare.jsonl").read_bytes()
    path.write_bytes(whole[:-200])
    call("compare", smoke, "--out", tmp_path)
    assert path.read_bytes().count(b"\n") == whole.count(b"\n") == len(lines_of(tmp_path))
    assert path.read_bytes()[: whole[:-1].rfind(b"\n")] == whole[: whole[:-1].rfind(b"\n")]


def test_a_line_cut_short_in_the_middle_is_told(
    compared: tuple[Path, str], smoke: Path, call, tmp_path: Path, nothing_is_computed: None
) -> None:
    path = tmp_path / "compare.jsonl"
    path.write_bytes(b'{"about": \n' + (compared[0] / "compare.jsonl").read_bytes())
    cut = path.read_bytes()
    problem = call("compare", smoke, "--out", tmp_path, code=2).stderr
    assert f"error: {path} is not a list of results" in problem and "give another folder" in problem
    assert path.read_bytes() == cut


@pytest.mark.parametrize("text", ["nonsense\n", "[1]\n", '{"about": 1}\nnull\n'])
def test_other_files_are_no_results(smoke: Path, call, tmp_path: Path, nothing_is_computed: None, text: str) -> None:
    (tmp_path / "compare.jsonl").write_text(text, encoding="utf-8")
    assert "is not a list of results" in call("compare", smoke, "--out", tmp_path, code=2).stderr


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.replace(b'"record"', b'"point"'),
        lambda raw: raw.replace(b'"exact": true, ', b""),
        lambda raw: raw.replace(b'"fingerprint"', b'"machine"'),
        lambda raw: b"\xff\xfe",
    ],
    ids=["no record", "an older record", "no machine", "no text"],
)
def test_results_that_cannot_be_read_are_told(
    compared: tuple[Path, str], smoke: Path, call, tmp_path: Path, nothing_is_computed: None, change: Any
) -> None:
    path = tmp_path / "compare.jsonl"
    path.write_bytes(change((compared[0] / "compare.jsonl").read_bytes()))
    assert "compare.jsonl" in call("compare", smoke, "--out", tmp_path, code=2).stderr


def test_a_last_line_without_its_end_is_gone_on_after(
    compared: tuple[Path, str], smoke: Path, call, tmp_path: Path
) -> None:
    path = tmp_path / "compare.jsonl"
    path.write_bytes((compared[0] / "compare.jsonl").read_bytes().rstrip(b"\n"))
    call("compare", smoke, "--out", tmp_path, "--only", "vanilla", "--seeds", 2)
    assert len(lines_of(tmp_path)) == len(WAYS) + 2


def test_one_system_that_fails_does_not_end_the_others(call, tmp_path: Path) -> None:
    way = '{method = "fine-tuning", lr = 1e30}'
    text = f'systems = [{{kind = "vanilla", unlearning = [{way}]}}, {{kind = "sisa", shards = 2}}]'
    ended = call("compare", write(tmp_path, text), "--out", tmp_path, code=9)
    assert "vanilla, interleaved, seed 0: vanilla: the loss is nan after epoch" in ended.stderr
    assert [line["record"]["kind"] for line in lines_of(tmp_path)] == ["sisa"]
    assert "sisa, 2 shards" in ended.stdout


def test_a_folder_is_one_comparisons_at_a_time(smoke: Path, call, tmp_path: Path, nothing_is_computed: None) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (tmp_path / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        problem = call("compare", smoke, "--out", tmp_path, code=8).stderr
    assert f"another comparison writes into {tmp_path}" in problem


def test_lines_that_are_there_twice_count_once(
    compared: tuple[Path, str], smoke: Path, call_json, tmp_path: Path, nothing_is_computed: None
) -> None:
    raw = (compared[0] / "compare.jsonl").read_bytes()
    (tmp_path / "compare.jsonl").write_bytes(raw + raw)
    assert all(one["seeds"] == one["retained"]["count"] == 1 for one in call_json("compare", smoke, "--out", tmp_path))


def test_a_readme_that_is_there_stays_and_tables_are_of_everything(
    compared: tuple[Path, str], smoke: Path, call, tmp_path: Path, nothing_is_computed: None
) -> None:
    (tmp_path / "compare.jsonl").write_bytes((compared[0] / "compare.jsonl").read_bytes())
    (tmp_path / "README.md").write_text("mine", encoding="utf-8")
    call("compare", smoke, "--out", tmp_path, "--only", "splitwiper")
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "mine"
    assert (tmp_path / "compare.md").read_bytes() == (compared[0] / "compare.md").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["README.md", "compare.jsonl", "compare.md"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"epochs": {"server"', b'"epochs": {}, "b": {"server"'),
        (b'"away": {', b'"away": "x", "b": {'),
        (b'"retained": 0.', b'"retained": "x", "b": 0.'),
    ],
)
def test_lines_that_cannot_be_shown_are_told(
    compared: tuple[Path, str], smoke: Path, call, tmp_path: Path, nothing_is_computed: None, old: bytes, new: bytes
) -> None:
    raw = (compared[0] / "compare.jsonl").read_bytes()
    assert old in raw
    (tmp_path / "compare.jsonl").write_bytes(raw.replace(old, new))
    assert "is not a list of results" in call("compare", smoke, "--out", tmp_path, code=2).stderr


# levels, own data, membership inference


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
    assert lines_of(tmp_path)[0]["record"]["requester"] == "north"


def test_own_data_needs_a_label_its_owner_and_test_rows(tmp_path: Path, call) -> None:
    head = own_data(tmp_path)
    for text in ("", "forget = 1\n", 'owner = "north"\n'):
        problem = call("compare", write(tmp_path, text, head=head), code=2).stderr
        assert "smoke.toml: compare.forget and compare.owner are missing: which label, and whose?" in problem
    for text, said in (
        ('forget = 1\nowner = "nrth"\n', "compare.owner = 'nrth' is no client. Did you mean 'north'?"),
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
    monkeypatch.setattr(import_module("splitwiper.attacks.membership.classifier"), "_TREES", 10)
    monkeypatch.setattr(import_module("splitwiper.attacks.membership.label_only"), "REPEATS", 2)
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


# bad input


def test_the_file_must_say_what_to_compare(tmp_path: Path, call) -> None:
    bare = write(tmp_path, "", head=HEAD.replace("[compare]\n", ""))
    problem = call("compare", bare, code=2).stderr
    assert "smoke.toml has no [compare] table" in problem and "splitwiper compare --help" in problem
    listed = write(tmp_path, "", head='compare = ["vanilla"]\n' + HEAD.replace("[compare]\n", ""))
    assert "has no [compare] table" in call("compare", listed, code=2).stderr
    problem = call("compare", tmp_path / "smok.toml", code=2).stderr
    assert "there is no configuration file" in problem and "Did you mean 'smoke.toml'?" in problem


def test_seeds_and_folders_out_of_range(smoke: Path, tmp_path: Path, call, nothing_is_computed: None) -> None:
    assert "--seeds" in call("compare", smoke, "--seeds", 0, code=2).stderr
    assert (
        "seeds = 1001 is out of range: give a number ≥ 1 and ≤ 1000"
        in call("compare", smoke, "--seeds", 1001, code=2).stderr
    )
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert "Check the path" in call("compare", smoke, "--out", tmp_path / "file", code=7).stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed = 2", r"unknown key 'compare.seed'. Did you mean 'seeds'\?"),
        ("systems = []", r"must be a list of systems, as in \[\[compare.systems\]\] kind = 'vanilla'"),
        ('systems = "vanilla"', r"must be a list of systems, as in \[\[compare.systems\]\]"),
        ("systems = [3]", r"compare.systems\[0\] must be a name or a table, not 3"),
        ('systems = ["splitwiper", "vanila"]', r"systems\[1\].kind = 'vanila' is no system. Did you mean 'vanilla'\?"),
        ("systems = [{}]", "kind = '' is no system. Known are splitwiper, vanilla, u-shaped, .*, sisa"),
        ('systems = ["vanilla", "vanilla"]', "two .* are called 'vanilla, interleaved'; give one of them another name"),
        ('systems = ["sisa", {kind = "vanilla", name = "sisa, 5 shards"}]', "another name"),
        ('systems = [{kind = "vanilla", shedule = "turns"}]', r"'compare.systems\[0\].shedule'. Did you mean 'sch"),
        ('systems = [{kind = "vanilla", schedule = "turn"}]', r"not one of interleaved, turns. Did you mean 'turns'\?"),
        ('systems = [{kind = "vanilla", schedule = 1}]', r"compare.systems\[0\].schedule must be str, not 1"),
        ('systems = [{kind = "vanilla", aggregate = "men"}]', r"no aggregation. Did you mean 'mean'\?"),
        ('systems = [{kind = "vanilla", start = "scrath"}]', r"pretrained, scratch. Did you mean 'scratch'\?"),
        ('systems = [{kind = "vanilla", synchronise = "averge"}]', r"none, average. Did you mean 'average'\?"),
        ('systems = [{kind = "vanilla", synchronise = true}]', "synchronise must be str, not True"),
        ('systems = [{kind = "splitfed-v1", synchronise = "none"}]', "SplitFed averages .* vanilla split learning"),
        ('systems = [{kind = "splitfed-v2", synchronise = "none"}]', "SplitFed averages .* vanilla split learning"),
        ('systems = [{kind = "vanilla", unlearning = "retrain"}]', "unlearn 'retrain'. Did you mean 'retraining'"),
        ('systems = [{kind = "vanilla", unlearning = ["x"]}]', "Known are retraining, .*, incompetent-teacher"),
        ('systems = [{kind = "vanilla", unlearning = []}]', "a list of ways to unlearn: retraining, fine-tuning"),
        ('systems = [{kind = "vanilla", unlearning = 3}]', "a list of ways to unlearn: retraining, fine-tuning"),
        ('systems = [{kind = "vanilla", unlearning = {method = "fine-tuning", epoch = 2}}]', "Did you mean 'epochs'"),
        ('systems = [{kind = "vanilla", unlearning = {method = "retraining", epochs = 2}}]', "It has no settings"),
        ('systems = [{kind = "vanilla", unlearning = {method = "distillation", alpha = "1"}}]', "must be a number"),
        (
            'systems = [{kind = "vanilla", unlearning = {method = "distillation", preserver = 1}}]',
            "unknown key 'preser",
        ),
        (
            'systems = [{kind = "vanilla", unlearning = {method = "fine-tuning", epochs = 0}}]',
            "epochs = 0 .* give a num",
        ),
        ('systems = [{kind = "splitwiper", mask = {}}]', r"unknown key .*mask'. Did you mean 'masking'\?"),
        ('systems = [{kind = "splitwiper", masking = {mode = "partitio"}}]', r"Did you mean 'partition'\?"),
        ('systems = [{kind = "splitwiper", unlearning = "retraining"}]', "Known keys: masking, noise"),
        ('systems = [{kind = "sisa", shards = 0}]', "shards = 0 is out of range"),
        ('systems = [{kind = "sisa", shards = "2"}]', r"systems\[0\].shards must be int, not '2'"),
        ('systems = [{kind = "sisa", slice = 2}]', r"Did you mean 'slices'\?"),
        ("seeds = 0", "seeds = 0 is out of range: give a number ≥ 1 and ≤ 1000"),
        ("seeds = 1001", "seeds = 1001 is out of range"),
        ('seeds = "2"', "compare.seeds must be int, not '2'"),
        ("delta = 0", "delta = 0.0 is out of range: give a number > 0 and ≤ 1"),
        ("delta = 1.1", "delta = 1.1 is out of range"),
        ("delta = nan", "delta = nan is out of range"),
        ("bandwidth = 0", "bandwidth = 0.0 is out of range: give a number > 0"),
        ("bandwidth = inf", "bandwidth = inf is out of range"),
        ('bandwidth = "fast"', "compare.bandwidth must be float, not 'fast'"),
        ('level = "clas"', r"not one of class, sample, client. Did you mean 'class'\?"),
        ("absent = 3", "compare.absent must be str, not 3"),
        ("forget = 1.5", "compare.forget must be str or int, not 1.5"),
        ("membership = 0.4", "compare.membership must be a table, not 0.4"),
        ("membership = {sahdows = 2}", r"'compare.membership.sahdows'. Did you mean 'shadows'"),
        ("membership = {shadow = 0.95}", "shadow = 0.95 is out of range: give a number ≥ 0 and ≤ 0.9"),
        ("membership = {shadows = 0}", "shadows = 0 is out of range: give a number ≥ 1 and ≤ 64"),
        ("membership = {labels = 0}", "labels = 0.0 is out of range: give a number > 0 and ≤ 1"),
        ('membership = {shadow = "some"}', "compare.membership.shadow must be float, not 'some'"),
    ],
)
def test_wrong_settings_are_told_with_the_remedy(
    tmp_path: Path, call, nothing_is_computed: None, text: str, said: str
) -> None:
    problem = call("compare", write(tmp_path, text), code=2).stderr
    assert "smoke.toml: " in problem and re.search(said, problem), problem


@pytest.mark.parametrize(
    ("absent", "said"),
    [
        ("north", "compare.absent = 'north' is no client, or the owner itself. Others are east, south"),
        ("soth", r"compare.absent = 'soth' is no client, or the owner itself. Did you mean 'south'\?"),
        ("nowhere", "Others are east, south"),
    ],
)
def test_only_another_client_can_be_away(tmp_path: Path, call, absent: str, said: str) -> None:
    assert re.search(said, call("compare", write(tmp_path, f'absent = "{absent}"'), code=2).stderr)


@pytest.mark.parametrize("way", ["distillation", "incompetent-teacher"])
def test_half_an_epoch_is_refused(tmp_path: Path, call, way: str) -> None:
    text = f'systems = [{{kind = "vanilla", unlearning = {{method = "{way}", epochs = 1.5}}}}]'
    assert f"epochs = 1.5 of {way} must be a whole number" in call("compare", write(tmp_path, text), code=2).stderr


@pytest.mark.parametrize(
    "ways",
    [
        '["retraining", "retraining"]',
        '[{method = "fine-tuning", epochs = 1}, {method = "fine-tuning", epochs = 2}]',
    ],
)
def test_one_way_given_twice_is_refused_or_told_apart(tmp_path: Path, ways: str) -> None:
    table = {"systems": [{"kind": "vanilla", "unlearning": tomllib.loads(f"ways = {ways}")["ways"]}]}
    try:
        (system,) = read_comparison(table).systems
    except ConfigError:
        return
    assert len(set(system.ways)) == 2


def test_a_slip_in_systems_is_recognised(tmp_path: Path, call) -> None:
    problem = call("compare", write(tmp_path, 'sytems = ["vanilla"]'), code=2).stderr
    assert "Did you mean 'systems'" in problem


@pytest.mark.parametrize(
    ("system", "said"),
    [
        ('{kind = "vanilla", synchronise = "yes"}', "is not one of none, average"),
        ('{kind = "splitfed-v1", synchronise = "none"}', "without synchronisation it is vanilla"),
    ],
)
def test_synchronise_is_told_as_the_file_has_it(tmp_path: Path, call, system: str, said: str) -> None:
    assert said in call("compare", write(tmp_path, f"systems = [{system}]"), code=2).stderr.replace("'", '"')
