"""``splitwiper reproduce``: every result of the paper at scale smoke, on real data that comes with scikit-learn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from splitwiper.errors import InputError
from splitwiper.seeding import digest
from splitwiper.store.process import Process
from splitwiper_lab.evaluation.reproduction.sources import check_same, parts
from splitwiper_lab.evaluation.reproduction.work import scratch
from splitwiper_lab.sweeps import Cell, CellResult

ROOT = Path(__file__).parents[3]
EXPERIMENTS = ROOT / "lab" / "src" / "splitwiper_lab" / "experiments"
IDS = EXPERIMENTS.joinpath("order.txt").read_text(encoding="utf-8").split()
SHARED = {"birch": "kmeans", "complexity-server": "complexity-client"}


def run(call_json, out: Path, name: str, *more: Any) -> dict[str, Any]:
    return call_json("reproduce", name, "--experiments", EXPERIMENTS, "--out", out, "--commit", "abc", *more)


@pytest.mark.share(len(IDS) - len(SHARED))  # one a day
@pytest.mark.parametrize("name", [name for name in IDS if name not in SHARED])
def test_every_result_has_its_shape(name: str, tmp_path: Path, call_json) -> None:
    found = run(call_json, tmp_path, name)
    assert all(cell["done"] == cell["wanted"] == 1 for cell in found["cells"])
    must = {verdict["name"]: verdict for verdict in found["verdicts"]}
    for check in checks_of(name):
        assert must[check]["held"] is True, must[check]
    lines = [json.loads(line) for line in (tmp_path / "smoke" / f"{name}.jsonl").read_text("utf-8").splitlines()]
    assert len(lines) == len(found["cells"])
    for line in lines:
        assert line["made"]["commit"] == "abc" and line["made"]["fingerprint"]["torch"] and line["made"]["date"]
    for other in (other for other, same in SHARED.items() if same == name):  # shown from the same measurements
        before = (tmp_path / "smoke" / f"{name}.jsonl").read_bytes()
        shown = run(call_json, tmp_path, other)
        assert all(verdict["held"] is not None for verdict in shown["verdicts"])
        assert all(v["held"] for v in shown["verdicts"] if v["name"] in checks_of(other))
        assert (tmp_path / "smoke" / f"{name}.jsonl").read_bytes() == before


def checks_of(name: str) -> tuple[str, ...]:
    from splitwiper_lab.evaluation.reproduction import read_experiment

    return read_experiment(EXPERIMENTS, name, "smoke").checks


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, call) -> tuple[Path, str]:
    """Results of one experiment, and what was printed; not to be changed."""
    out = tmp_path_factory.mktemp("reproduced")
    said = call("reproduce", "consensus", "--experiments", EXPERIMENTS, "--out", out, env={"COLUMNS": "80"}).stdout
    return out, said


def test_people_see_tables_verdicts_and_coverage(measured: tuple[Path, str]) -> None:
    out, said = measured
    assert "Time to agree on labels" in said and "2 clients, 10 labels" in said
    assert "Holds: agreeing on labels takes less than a second" in said
    assert f"4 of 4 cells are there, at scale smoke: {out / 'smoke' / 'consensus.jsonl'}" in said
    assert all(len(line) <= 80 for line in said.split("Holds")[0].splitlines()[1:])


def test_what_is_there_is_not_measured_again(
    measured: tuple[Path, str], call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, said = measured
    monkeypatch.setattr("splitwiper_lab.evaluation.reproduction.runner.MEASURES", {})
    again = call("reproduce", "consensus", "--experiments", EXPERIMENTS, "--out", out, env={"COLUMNS": "80"}).stdout
    assert again == said


def test_a_cell_that_is_missing_is_measured_alone(measured: tuple[Path, str], call, tmp_path: Path) -> None:
    lines = (measured[0] / "smoke" / "consensus.jsonl").read_text("utf-8").splitlines()
    path = tmp_path / "smoke" / "consensus.jsonl"
    path.parent.mkdir()
    path.write_text("\n".join([*lines[:2], lines[3], lines[2][:40]]), encoding="utf-8")  # the last was cut short
    call("reproduce", "consensus", "--experiments", EXPERIMENTS, "--out", tmp_path)
    after = path.read_text("utf-8").splitlines()
    assert after[:3] == [*lines[:2], lines[3]] and len(after) == 4
    same = [json.loads(line) for line in (lines[2], after[3])]
    assert same[0]["settings"] == same[1]["settings"] and same[0]["condition"] == same[1]["condition"]


def test_damage_names_file_and_line(measured: tuple[Path, str], call, tmp_path: Path) -> None:
    lines = (measured[0] / "smoke" / "consensus.jsonl").read_text("utf-8").splitlines()
    path = tmp_path / "smoke" / "consensus.jsonl"
    path.parent.mkdir()
    path.write_text("\n".join([lines[0], '{"condition": 3}', lines[1]]) + "\n", encoding="utf-8")
    told = call("reproduce", "consensus", "--experiments", EXPERIMENTS, "--out", tmp_path, code=2).stderr
    assert "consensus.jsonl, line 2 is not a result" in told and "measured again" in told


def test_pieces(call_json, tmp_path: Path) -> None:
    some = run(call_json, tmp_path, "consensus", "--only", "2 clients")
    assert [cell["done"] for cell in some["cells"]] == [1, 1, 0, 0]
    listed = call_json("reproduce", "--list", "--experiments", EXPERIMENTS, "--out", tmp_path)
    assert {one["id"]: (one["done"], one["cells"]) for one in listed}["consensus"] == (2, 4)
    assert [one["id"] for one in listed] == IDS


def test_no_time_measures_nothing(call, tmp_path: Path) -> None:
    call("reproduce", "consensus", "--experiments", EXPERIMENTS, "--out", tmp_path, "--minutes", 0)
    assert list(tmp_path.rglob("*.jsonl")) == []
    told = call("reproduce", "consensus", "--experiments", EXPERIMENTS, "--out", tmp_path, "--minutes", 0, "--json")
    assert {cell["done"] for cell in json.loads(told.stdout)["cells"]} == {0}


def test_a_result_without_its_figures_is_named(call, tmp_path: Path) -> None:
    call("reproduce", "consensus", "--experiments", EXPERIMENTS, "--out", tmp_path)
    path = tmp_path / "smoke" / "consensus.jsonl"
    first, second, *rest = path.read_text(encoding="utf-8").splitlines()
    broken = json.dumps({**json.loads(second), "values": {"seconds": "x"}})
    first = json.dumps({**json.loads(second), "settings": "of an older experiment"})
    path.write_text("\n".join([first, broken, *rest]) + "\n", encoding="utf-8")
    said = call("reproduce", "consensus", "--experiments", EXPERIMENTS, "--out", tmp_path, code=2).stderr
    assert f"{path}, line 2 is not a result" in said and "Take that line away" in said


def test_where_results_cannot_be_written_nothing_is_measured(call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    said = call("reproduce", "consensus", "--experiments", EXPERIMENTS, "--out", tmp_path / "file", code=2).stderr
    assert "results cannot be written to" in said and "give another --out" in said


def test_what_a_killed_measurement_left_is_swept(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = Process.current()
    stem = f"splitwiper-reproduce-{digest(mine.place)[:8]}"
    gone, odd, other, elsewhere = (
        tmp_path / name
        for name in (
            f"{stem}-999999999-1-ab",
            f"{stem}-x-y-z",
            f"{stem}-{mine.pid}-{mine.started}-cd",
            "splitwiper-reproduce-01234567-999999999-1-ab",
        )
    )
    for folder in (gone, odd, other, elsewhere):
        (folder / "run").mkdir(parents=True)
    with scratch() as room:
        assert not gone.exists() and odd.exists() and other.exists() and elsewhere.exists()
        assert room.is_dir() and room.parent == tmp_path
    assert not room.exists()


def test_results_of_other_data_are_not_gone_on_with(tmp_path: Path) -> None:
    result = CellResult(Cell("c", "s", 0, ""), {}, {"data": {"ag_news": [20_000, 7_600]}})
    check_same([result], {"ag_news": [20_000, 7_600], "mnist": [1, 1]}, tmp_path)
    with pytest.raises(InputError, match=r"20,000 training and 7,600 test rows of ag_news, and 120,000 .* are here"):
        check_same([result], {"ag_news": [120_000, 7_600]}, tmp_path)
    assert parts([result.made]) == ["20,000 of 120,000 training rows of ag_news"]
    assert parts([{"data": {"cifar10": [50_000, 10_000]}}, {}]) == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("effectivness-vgg",), 6, "Did you mean 'effectiveness-vgg'"),
        (("consensus", "--scale", "large"), 2, "Take smoke, cpu, full"),
        (("consensus", "--only", "nothing like it"), 2, "is in no cell's name. Some are: 2 clients, 10 labels; λ1"),
        ((), 2, "--list"),
        (("convergence", "--scale", "cpu", "--data", "/nowhere"), 6, "/nowhere/cifar-10-batches-bin"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], code: int, words: str, call, tmp_path: Path) -> None:
    told = call("reproduce", *arguments, "--experiments", EXPERIMENTS, "--out", tmp_path, code=code).stderr
    assert words in told


def test_a_gpu_that_is_not_there(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    told = call(
        "reproduce", "convergence", "--scale", "full", "--experiments", EXPERIMENTS, "--out", tmp_path, code=2
    ).stderr
    assert "convergence takes a GPU at scale full" in told and "--scale cpu" in told


def test_a_folder_without_experiments(call, tmp_path: Path) -> None:
    told = call("reproduce", "--list", "--experiments", tmp_path, code=6).stderr
    assert f"no experiments in {tmp_path}" in told
