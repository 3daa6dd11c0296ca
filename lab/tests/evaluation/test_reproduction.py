"""Experiments and their cells: what is read, what is missing, how it is judged."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from splitwiper.errors import ConfigError, DataError, NotFoundError, TrainingError
from splitwiper_lab.evaluation.reproduction import (
    SCALES,
    Bench,
    Experiment,
    ExperimentMeasure,
    about,
    cells,
    coverage,
    experiments,
    judged,
    outdated,
    read_experiment,
    read_experiment_results,
    select,
)
from splitwiper_lab.evaluation.reproduction.checks import CHECKS
from splitwiper_lab.evaluation.reproduction.growth import exponents
from splitwiper_lab.evaluation.reproduction.outcomes import BANDWIDTH, over_seeds
from splitwiper_lab.evaluation.reproduction.runner import MEASURES
from splitwiper_lab.evaluation.reproduction.work import work_of
from splitwiper_lab.sweeps import Cell, CellResult, append, in_turn, missing, side_by_side, sweep

HERE = Path(__file__).parents[2] / "src" / "splitwiper_lab" / "experiments"
SMALL = """
title = "Small"
kind = "consensus"
[settings]
repeats = 3
[work]
source = "digits"
server = {epochs = 2, batch = 16}
[[conditions]]
name = "few"
x = 2
seeds = 2
work = {rows = 10, server = {epochs = 5}}
[[conditions]]
name = "many"
x = 4
[[systems]]
name = "a"
gamma = 2
[[systems]]
name = "b"
seeds = 1
group = "line"
x = 3
[scales.smoke]
seeds = 1
work = {server = {epochs = 1}}
[scales.cpu]
work = {rows = 50}
conditions = [{name = "own", work = {rows = 7}, only = ["b"]}]
"""


def write(folder: Path, text: str = SMALL, name: str = "small") -> Path:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "experiment.toml").write_text(text, encoding="utf-8")
    return folder


def result(cell: Cell, values: dict[str, Any] | None = None) -> CellResult:
    return CellResult(cell, values or {"seconds": [0.1], "messages": [3]}, {"commit": "abc"})


# --- reading -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", experiments(HERE))
def test_every_experiment_can_be_read_at_every_scale(name: str, scale: str) -> None:
    found = read_experiment(HERE, name, scale)
    assert found.title and found.paper and found.about and cells(found)
    assert set(found.checks) | set(found.claims) <= set(CHECKS) and (found.checks or found.claims)
    assert found.kind in MEASURES and judged(found, [])
    names = {system.name for system in found.systems}
    for phase in (v for k, v in found.reported.items() if k in ("learned", "unlearned")):
        for figures in phase.values():
            assert {k for k, v in figures.items() if not isinstance(v, dict)} <= names


def test_the_order_is_that_of_the_page() -> None:
    assert experiments(HERE)[0] == "effectiveness-vgg" and len(experiments(HERE)) == 16
    assert set(experiments(HERE)) == set((HERE / "order.txt").read_text(encoding="utf-8").split())


def test_layers(tmp_path: Path) -> None:
    write(tmp_path)
    full, smoke, cpu = (read_experiment(tmp_path, "small", scale) for scale in ("full", "smoke", "cpu"))
    assert [c.work["server"] for c in full.conditions] == [{"epochs": 5, "batch": 16}, {"epochs": 2, "batch": 16}]
    assert [c.work["server"]["epochs"] for c in smoke.conditions] == [1, 1]
    assert [c.seeds for c in full.conditions] == [2, 1] and [c.seeds for c in smoke.conditions] == [1, 1]
    (own,) = cpu.conditions  # a scale's own conditions come before the scale
    assert own.work["rows"] == 7 and own.settings == {"repeats": 3}
    assert [(c.condition, c.system, c.seed) for c in cells(cpu)] == [("own", "b", 0)]
    assert [c.key for c in cells(full)] == [
        ("few", "a", 0),
        ("few", "b", 0),
        ("many", "a", 0),
        ("many", "b", 0),
        ("few", "a", 1),  # b has one seed
    ]
    assert full.systems[1].group == "line" and full.systems[1].settings == {"name": "b"}


def test_one_like_another(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, 'title = "Other"\nlike = "small"\n[work]\nserver = {epochs = 9}\n', "like")
    write(tmp_path, 'title = "Same"\nsame = "small"\nshow = "otherwise"\n', "same")
    like, same, small = (read_experiment(tmp_path, name, "full") for name in ("like", "same", "small"))
    assert like.measured_as == "like" and like.conditions[1].work["server"] == {"epochs": 9, "batch": 16}
    assert same.measured_as == "small" and same.show == "otherwise" and cells(same) == cells(small)
    assert {c.condition for c in set(cells(like)) & set(cells(small))} == {"few"}  # which says its own epochs


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('kind = "consensus"', 'kind = "guess"', "kind = 'guess' is not one of compare"),
        ("title", "titel", "unknown key 'titel'. Did you mean 'title'"),
        ("[scales.cpu]", "[scales.cpuu]", "unknown key 'scales.cpuu'. Did you mean 'cpu'"),
        ("x = 4", "y = 4", "unknown key 'conditions.y'"),
        ('name = "b"', 'name = "a"', "a name of its own"),
        ('name = "many"', 'name = "few"', "two conditions have the same name"),
        ('only = ["b"]', 'only = ["c"]', "there is no system 'c'"),
        ("title =", "title", "not valid TOML"),
        ('kind = "consensus"', 'kind = "consensus"\nlike = "smaller"', "is like 'smaller', which is no other"),
        ('kind = "consensus"', 'kind = "consensus"\nlike = "small"', "is like 'small', which is no other"),
    ],
)
def test_bad_files(old: str, new: str, words: str, tmp_path: Path) -> None:
    write(tmp_path, SMALL.replace(old, new))
    with pytest.raises(ConfigError) as problem:
        for scale in ("cpu", "full"):
            read_experiment(tmp_path, "small", scale)
    assert words in str(problem.value) and "experiment.toml" in str(problem.value)


def test_unknown_arguments_of_work(tmp_path: Path) -> None:
    write(tmp_path, SMALL.replace('source = "digits"', 'sorce = "digits"'))
    condition = read_experiment(tmp_path, "small", "full").conditions[0]
    with pytest.raises(ConfigError, match=r"unknown key 'work\.sorce'. Did you mean 'source'"):
        work_of(condition, 0, Bench(tmp_path))


# --- files of results ----------------------------------------------------------------------------------------


def test_results_come_back(tmp_path: Path) -> None:
    found, path = read_experiment(write(tmp_path), "small", "full"), tmp_path / "out" / "small.jsonl"
    first, second = (result(cell) for cell in cells(found)[:2])
    for one in (first, second, first):
        append(path, one)
    assert read_experiment_results(path, found) == [first, second]
    done = {(c.condition, c.system): (c.done, c.wanted) for c in coverage(found, [first, second])}
    assert done == {("few", "a"): (1, 2), ("few", "b"): (1, 1), ("many", "a"): (0, 1), ("many", "b"): (0, 1)}
    path.write_bytes(path.read_bytes()[:-30])  # killed while it wrote
    assert read_experiment_results(path, found) == [first, second]
    append(path, second)
    assert len(path.read_bytes().splitlines()) == 3


def test_results_of_other_settings_are_not_these(tmp_path: Path) -> None:
    found, path = read_experiment(write(tmp_path), "small", "full"), tmp_path / "small.jsonl"
    append(path, result(cells(found)[0]))
    other = read_experiment(write(tmp_path, SMALL.replace("gamma = 2", "gamma = 3")), "small", "full")
    assert read_experiment_results(path, other) == [] and (outdated(path, other), outdated(path, found)) == (1, 0)


@pytest.mark.parametrize("line", ["[]", "{}", '{"condition": 3}', "nothing", '{"condition": "few"}'])
def test_a_damaged_line_is_named(line: str, tmp_path: Path) -> None:
    found, path = read_experiment(write(tmp_path), "small", "full"), tmp_path / "small.jsonl"
    append(path, result(cells(found)[0]))
    path.write_bytes(path.read_bytes() + line.encode() + b"\n")
    with pytest.raises(DataError, match=r"small\.jsonl, line 2 is not a result"):
        read_experiment_results(path, found)


# --- measuring -----------------------------------------------------------------------------------------------


def fake(monkeypatch: pytest.MonkeyPatch, asked: list[Any], problems: dict[str, Exception]) -> None:
    def measure(condition, systems, seed, bench):
        for system in systems:
            asked.append((condition.name, system["name"], seed))
            yield system["name"], {"seconds": [1.0], "messages": [1]}
        if condition.name in problems:
            raise problems[condition.name]

    monkeypatch.setitem(MEASURES, "consensus", measure)


def test_what_is_missing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = read_experiment(write(tmp_path), "small", "full"), list[Any]()
    fake(monkeypatch, asked, {})
    measure = ExperimentMeasure(found, Bench(tmp_path))
    todo = missing(cells(found), [result(cells(found)[0])])
    got = [cell for cell, _ in in_turn(todo, measure)]
    assert got == cells(found)[1:] and asked == [cell.key for cell in got]
    assert [cell.key for cell in select(found, only=["many; a"])] == [("many", "a", 0)]
    assert [cell.seed for cell in select(found, seeds=1)] == [0, 0, 0, 0]
    turns = iter([True, True, False])
    assert len(list(in_turn(cells(found), measure, go_on=lambda: next(turns)))) == 2


def test_trouble_in_one_place_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read_experiment(write(tmp_path), "small", "full")
    for kind, problem in ((NotFoundError, NotFoundError("put it there")), (TrainingError, TrainingError("diverged"))):
        asked: list[Any] = []
        fake(monkeypatch, asked, {"few": problem})
        got = []
        with pytest.raises(kind, match=r"put it there|few, seed 0: diverged"):
            for cell, _ in in_turn(cells(found), ExperimentMeasure(found, Bench(tmp_path))):
                got.append(cell.key)
        assert got == asked == [cell.key for cell in cells(found)]


@pytest.mark.usefixtures("forked")
def test_cells_at_once_say_what_cells_in_turn_say(tmp_path: Path) -> None:
    found, turns = read_experiment(HERE, "convergence", "smoke"), iter([True, True, False])
    measure = ExperimentMeasure(found, Bench(tmp_path))
    got = dict(side_by_side(cells(found), measure, jobs=2, go_on=lambda: next(turns, False)))
    assert sorted(got, key=cells(found).index) == cells(found)[:2]  # no third is begun
    assert got == dict(in_turn(cells(found)[:2], measure))


@pytest.mark.usefixtures("forked")
def test_trouble_in_one_process_stops_no_other(tmp_path: Path) -> None:
    found = read_experiment(HERE, "consensus", "smoke")
    lost = dataclasses.replace(found.conditions[0], work={**found.conditions[0].work, "source": "cifar10"})
    found = dataclasses.replace(found, conditions=(lost, *found.conditions[1:]))
    measure, got = ExperimentMeasure(found, Bench(tmp_path, data=tmp_path)), []
    with pytest.raises(NotFoundError, match="cifar-10"):
        for one in sweep(None, cells(found), measure, made=lambda cell: {}, about=about(found), jobs=2):
            got.append(one.cell.condition)
    assert got and lost.name not in got


# --- judging -------------------------------------------------------------------------------------------------


def cost(**values: float) -> dict[str, float]:
    every = ("seconds", "flops", "bytes_up", "bytes_down", "round_trips", "storage", "handling")
    return {name: values.get(name, 0) for name in every}


def record(system: str, kind: str, *, retained: float = 0.9, forgotten: float = 0.0, **more: Any) -> dict[str, Any]:
    """A record of two clients; `work` is what each spends."""
    work = more.get("work", 4)
    spent = {name: cost(seconds=work, flops=work, bytes_up=work, bytes_down=work) for name in ("north", "south")}
    left = {"north": spent["north"], "south": spent["south"] if more.get("others") else cost()}
    phase = {
        "retained": retained,
        "forgotten": 0.8,
        "spent": spent,
        "preparing": {"north": cost(seconds=10, flops=10), "south": cost(seconds=10, flops=10)},
        "server": cost(flops=100),
        "took_part": ["north", "south"],
    }
    took = ["north", "south"] if more.get("others") else ["north"]
    after = {**phase, "forgotten": forgotten, "spent": left, "preparing": {}, "took_part": took}
    return {
        "system": system,
        "kind": kind,
        "unlearning": "x",
        "seed": 0,
        "requester": "north",
        "epochs": {"server": 3, "client": 10},
        "learned": phase,
        "unlearned": after,
        "exact": more.get("exact", True),
        "proof": "",
        "away": None,
        "membership": (),
    }


COMPARED = """
title = "t"
paper = "p"
about = "a"
kind = "compare"
[[conditions]]
name = "M = 1"
group = "panel"
x = 1
[[conditions]]
name = "M = 4"
group = "panel"
x = 4
[[systems]]
name = "Vanilla"
kind = "vanilla"
[[systems]]
name = "γ = 1"
kind = "splitwiper"
"""


@pytest.fixture
def compared(tmp_path: Path) -> Experiment:
    return read_experiment(write(tmp_path, COMPARED, "compared"), "compared", "full")


def filled(experiment: Experiment, **changed: Any) -> list[CellResult]:
    """Results as they should be; `changed` alters SplitWiper's."""
    out = []
    for cell in cells(experiment):
        vanilla, times = cell.system == "Vanilla", int(cell.condition[-1])
        values = (
            record(cell.system, "vanilla", retained=0.8, work=6 * times, others=True)
            if vanilla
            else record(cell.system, "splitwiper", **{"work": 4, **changed})
        )
        out.append(result(cell, values))
    return out


CLASS = ("forgotten-zero", "others-nothing", "exact", "retained-better", "linear-in-epochs", "constant-in-epochs")


def test_all_holds(compared: Experiment) -> None:
    assert {v.name: v.held for v in judged(compared, filled(compared), CLASS)} == dict.fromkeys(CLASS, True)


@pytest.mark.parametrize(
    ("change", "broken", "words"),
    [
        ({"forgotten": 0.03}, "forgotten-zero", "γ = 1: 3.00 %"),
        ({"others": True}, "others-nothing", "γ = 1: others worked"),
        ({"exact": False}, "exact", "γ = 1: not exact"),
        ({"retained": 0.75}, "retained-better", "-5.00 points against Vanilla"),
    ],
)
def test_each_check_can_fail(change: dict[str, Any], broken: str, words: str, compared: Experiment) -> None:
    verdicts = {v.name: v for v in judged(compared, filled(compared, **change), CLASS)}
    assert [name for name, v in verdicts.items() if not v.held] == [broken]
    assert words in verdicts[broken].sentence()


def test_growth_can_fail(compared: Experiment) -> None:
    grown = [
        dataclasses.replace(one, values=record("γ = 1", "splitwiper", work=int(one.cell.condition[-1])))
        if one.cell.system == "γ = 1"
        else one
        for one in filled(compared)
    ]
    verdicts = {v.name: v.held for v in judged(compared, grown, CLASS)}
    assert verdicts["constant-in-epochs"] is False and verdicts["linear-in-epochs"] is True
    assert exponents(compared, filled(compared), "learned.clients.bytes")["panel", "Vanilla"] == (pytest.approx(1), 2)


def test_nothing_measured_is_no_verdict(compared: Experiment) -> None:
    assert {v.held for v in judged(compared, [], CLASS)} == {None}
    with pytest.raises(ConfigError, match="there is no check 'exactly'"):
        judged(compared, [], ["exactly"])


def test_costs_are_counted_as_the_paper_does(compared: Experiment) -> None:
    found = over_seeds(compared, filled(compared))
    mine, vanilla = found["M = 4", "γ = 1"], found["M = 4", "Vanilla"]
    assert mine["learned.requester.training"].mean == 4 + 10 / 10  # the last of N epochs of pre-training
    assert vanilla["learned.requester.training"].mean == 24  # starts from the same halves: none of it
    assert mine["learned.requester.sending"].mean == pytest.approx(8 * 8 / BANDWIDTH)
    assert mine["unlearned.others.training"].mean == 0


def test_times_are_of_what_ran_alone(compared: Experiment) -> None:
    alone = filled(compared)[0]
    slow = dataclasses.replace(
        alone,
        cell=dataclasses.replace(alone.cell, seed=1),
        values=record(alone.cell.system, "vanilla", work=40, retained=0.7),
        made={"beside": 3},
    )
    found = over_seeds(compared, [alone, slow])[alone.cell.condition, alone.cell.system]
    before = over_seeds(compared, [alone])[alone.cell.condition, alone.cell.system]
    assert found["learned.requester.training"] == before["learned.requester.training"]
    assert found["learned.retained"].count == 2 and found["learned.retained"].mean == pytest.approx(0.75)
    only = over_seeds(compared, [slow])[alone.cell.condition, alone.cell.system]
    assert only["learned.requester.training"].mean == 40
