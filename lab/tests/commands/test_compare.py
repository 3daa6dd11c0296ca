"""``splitwiper compare`` on real digits: what it prints and keeps, and how it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands.comparing import HEAD, SYSTEMS, TWO, WAYS, lines_of, write
from splitwiper.store import files


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
    record = lines_of(compared[0])[0]["values"]
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
    assert [(line["values"]["system"], line["values"]["unlearning"]) for line in found] == WAYS
    for line in found:
        made = line["made"]
        assert made["commit"] == "abc" and made["fingerprint"]["torch"] and made["date"] and made["version"]
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
    monkeypatch.setattr("splitwiper_lab.evaluation.comparison.running._ours", None)  # what is there is not missed
    found = call_json("compare", config, "--out", out, "--only", "splitwiper", "--only", "sisa")
    assert [one["system"] for one in found] == [WAYS[0][0], WAYS[4][0]]
    assert found[0]["share_of_vanilla"][0]["mean"] is None
    assert [line["values"]["kind"] for line in lines_of(out)] == ["splitwiper", "sisa"]
    problem = call("compare", config, "--out", out, "--only", "nonsense", code=2).stderr
    assert "--only nonsense is in no system's name" in problem and "u-shaped, interleaved" in problem


def test_more_seeds_give_deviations(compared: tuple[Path, str], smoke: Path, call, call_json, tmp_path: Path) -> None:
    first = (compared[0] / "compare.jsonl").read_text(encoding="utf-8")
    (tmp_path / "compare.jsonl").write_text(first, encoding="utf-8")
    words = ("compare", smoke, "--out", tmp_path, "--only", "splitwiper", "--only", "vanilla")
    found = call_json(*words, "--seeds", 2)
    assert (tmp_path / "compare.jsonl").read_text(encoding="utf-8").startswith(first)
    assert [line["values"]["seed"] for line in lines_of(tmp_path)] == [0] * 5 + [1] * 3
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
    once, again = (line["values"]["learned"]["spent"]["north"]["bytes_up"] for line in lines_of(tmp_path))
    assert again == pytest.approx(1.5 * once, rel=0.1)


def test_ways_that_were_taken_out_are_not_shown(
    compared: tuple[Path, str], call_json, tmp_path: Path, nothing_is_computed: None
) -> None:
    (tmp_path / "compare.jsonl").write_bytes((compared[0] / "compare.jsonl").read_bytes())
    found = call_json("compare", write(tmp_path, 'systems = ["vanilla"]'), "--out", tmp_path)
    assert [one["unlearning"] for one in found] == ["retraining"]


def test_a_last_line_cut_short_is_computed_again(compared: tuple[Path, str], smoke: Path, call, tmp_path: Path) -> None:
    """A run that was killed while it wrote is continued."""
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
    assert f"error: {path}, line 1 is not a result" in problem and "Take that line away" in problem
    assert path.read_bytes() == cut


@pytest.mark.parametrize("text", ["nonsense\n", "[1]\n", '{"about": 1}\nnull\n'])
def test_other_files_are_no_results(smoke: Path, call, tmp_path: Path, nothing_is_computed: None, text: str) -> None:
    (tmp_path / "compare.jsonl").write_text(text, encoding="utf-8")
    assert "is not a result" in call("compare", smoke, "--out", tmp_path, code=2).stderr


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.replace(b'"values"', b'"point"'),
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
    assert "smoke, seed 0: vanilla, interleaved: vanilla: the loss is nan after epoch" in ended.stderr
    assert [line["values"]["kind"] for line in lines_of(tmp_path)] == ["sisa"]
    assert "sisa, 2 shards" in ended.stdout


def test_a_folder_is_one_comparisons_at_a_time(smoke: Path, call, tmp_path: Path, nothing_is_computed: None) -> None:
    with files.locked(tmp_path):
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
    assert "is not a result" in call("compare", smoke, "--out", tmp_path, code=2).stderr
