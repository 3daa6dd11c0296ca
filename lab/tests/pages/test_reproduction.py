"""The page of results: made from real results of scale smoke, from altered ones, and from none."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from report.reading import whole
from splitwiper.errors import DataError
from splitwiper_lab.evaluation.reproduction import (
    SCALES,
    Bench,
    ExperimentMeasure,
    about,
    cells,
    experiments,
    read_experiment,
)
from splitwiper_lab.pages.reproduction import (
    Collected,
    Measured,
    claims,
    read_all,
    read_comparison,
    read_tradeoff,
    readme,
    render,
)
from splitwiper_lab.sweeps import CellResult, sweep

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "lab" / "src" / "splitwiper_lab" / "experiments"
SOME = ("effectiveness-resnet18", "time-epochs", "kmeans", "convergence", "samples-images")
MADE = {
    "fingerprint": {"torch": "2.9", "device": "cpu", "machine": "x86_64"},
    "version": "0",
    "date": "2026-01-02T03:04:05+00:00",
    "commit": "abc1234",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results, each measured here."""
    out = tmp_path_factory.mktemp("results")
    for name in SOME:
        experiment = read_experiment(FOLDER, name, "smoke")
        measure = ExperimentMeasure(experiment, Bench(out))
        path = out / "smoke" / f"{name}.jsonl"
        list(sweep(path, cells(experiment), measure, made=lambda cell: MADE, about=about(experiment)))
    return out


@pytest.fixture(scope="module")
def collected(folder: Path) -> Collected:
    return Collected("smoke", read_all(FOLDER, folder, "smoke"))


def altered(collected: Collected, name: str, change: Callable[[dict[str, Any]], None]) -> Collected:
    """The same results, but for one experiment's values."""
    out = []
    for one in collected.measured:
        if one.experiment.id == name:
            results = []
            for result in one.results:
                values = json.loads(json.dumps(result.values))
                change(values)
                results.append(replace(result, values=values))
            one = Measured(one.experiment, results)
        out.append(one)
    return replace(collected, measured=tuple(out))


def verdicts(collected: Collected) -> dict[str, str]:
    return {claim.key: claim.verdict for claim in claims(collected)}


def only(collected: Collected, *names: str) -> Collected:
    """Without the results of all other experiments."""
    kept = [one if one.experiment.id in names else Measured(one.experiment, ()) for one in collected.measured]
    return replace(collected, measured=tuple(kept))


def test_the_page_has_every_experiment_and_what_it_was_measured_with(collected: Collected) -> None:
    document = render(collected)
    page = whole(document)
    assert document == render(collected)
    for one in collected.measured:
        assert one.experiment.title in page.text
        assert f"splitwiper reproduce {one.experiment.id} --scale smoke" in page.text
    assert page.text.count("Not measured yet at scale smoke.") == sum(not one.results for one in collected.measured)
    assert "Measured on CPU, x86_64 with torch 2.9, commit abc1234, 2 January 2026." in page.text
    assert "These results are of scale smoke" in page.text and "Nothing is missing." in page.text
    assert "0 of 8" not in page.text and document.count("<svg") > 10


def test_the_page_of_no_results_says_so() -> None:
    page = whole(render(Collected("full", tuple(empty("full")))))
    assert "No experiment was measured yet at scale full." in page.text
    assert page.text.count("not measured yet") == 8  # each claim's card, and the four at a glance
    assert page.text.count("Not measured yet") == len(experiments(FOLDER)) + 2


@pytest.mark.parametrize("scale", SCALES)
def test_every_experiment_without_results(scale: str) -> None:
    assert set(verdicts(Collected(scale, tuple(empty(scale)))).values()) == {"not measured yet"}
    for one in empty(scale):
        text = readme(one.experiment, ())
        assert "\nNot measured yet.\n" in text and one.experiment.title in text


def empty(scale: str) -> list[Measured]:
    return [Measured(read_experiment(FOLDER, name, scale), ()) for name in experiments(FOLDER)]


def test_a_forgotten_label_that_is_known_refutes_the_first_claim(collected: Collected) -> None:
    assert verdicts(collected)["a"] == "holds"

    def known(values: dict[str, Any]) -> None:
        values["unlearned"]["forgotten"] = 0.03 if values["kind"] == "splitwiper" else 0.0

    claim = claims(altered(collected, "effectiveness-resnet18", known))[0]
    assert claim.verdict == "does not hold" and "effectiveness-resnet18" in claim.why
    assert any("up to 3.00\xa0%" in one.ours for one in claim.evidence)


@pytest.mark.parametrize(
    ("lead", "verdict"), [(0.09, "holds"), (0.02, "holds in part"), (0.0, "does not hold"), (-0.01, "does not hold")]
)
def test_the_second_claim_follows_from_the_differences(collected: Collected, lead: float, verdict: str) -> None:
    def ahead(values: dict[str, Any]) -> None:
        for phase in ("learned", "unlearned"):
            values[phase]["retained"] = 0.8 + (lead if values["kind"] == "splitwiper" else 0.0)

    assert verdicts(altered(collected, "effectiveness-resnet18", ahead))["b"] == verdict


def test_the_third_claim_follows_from_the_costs(collected: Collected) -> None:
    def costs(factor: float) -> Callable[[dict[str, Any]], None]:
        def change(values: dict[str, Any]) -> None:
            if values["kind"] == "splitwiper":
                for part in ("spent", "preparing"):
                    for cost in values["unlearned"][part].values():
                        for name, amount in cost.items():
                            cost[name] = type(amount)(amount * factor)

        return change

    some = only(collected, "time-epochs")
    cheap, dear = (claims(altered(some, "time-epochs", costs(factor)))[2] for factor in (1e-4, 1e4))
    assert cheap.verdict == "holds" and not cheap.why
    assert dear.verdict == "holds in part" and dear.why  # clients' cost is still constant in M
    assert [one.reached for one in cheap.evidence][:2] == [1.0, 1.0]


@pytest.mark.parametrize(("share", "verdict"), [(0.0, "holds"), (0.05, "holds in part"), (1.0, "does not hold")])
def test_the_fourth_claim_follows_from_what_attacks_find(collected: Collected, share: float, verdict: str) -> None:
    def found(values: dict[str, Any]) -> None:
        for attack in values["attacks"]:
            attack["perfect"] = share

    both = altered(altered(collected, "kmeans", found), "birch", found)  # BIRCH must find nothing at all
    assert verdicts(both)["d"] == verdict


def test_the_real_comparison_and_tradeoff_are_judged_and_shown() -> None:
    beside = Collected(
        "full",
        tuple(empty("full")),
        read_tradeoff(ROOT / "results/tradeoff/cifar10-vgg/tradeoff.jsonl"),
        read_comparison(ROOT / "results/compare/cifar10/compare.jsonl"),
    )
    page = whole(render(beside))
    assert "not measured yet" not in verdicts(beside).values()
    assert "taking turns" in claims(beside)[1].why and "pre-trains again" in claims(beside)[2].why
    assert "duplicate, γ = 3" in page.text and "vanilla, interleaved" in page.text


def test_the_papers_figures_stand_beside_ours(collected: Collected) -> None:
    """Real values, as if they were of full scale."""
    ours = next(one for one in collected.measured if one.experiment.id == "effectiveness-resnet18").results
    values = next(dict(r.values) for r in ours if r.values["kind"] == "splitwiper")
    values["unlearned"] = {**values["unlearned"], "retained": 0.9}
    news = read_experiment(FOLDER, "effectiveness-ag-news", "full")
    results = [CellResult(cell, values, MADE) for cell in cells(news) if cell.system == "γ = 1"][:1]
    page = whole(render(Collected("full", (Measured(news, results),))))
    assert "paper 85.82" in page.text and "+4.2" in page.text
    text = readme(news, results)
    assert "| 90.0 | 85.82 | +4.2 |" in text and "| – | 85.19 | – |" in text and "abc1234" in text
    assert "82.21" in readme(news, ())


def test_what_results_say_is_escaped(collected: Collected) -> None:
    hostile = "<script>alert('x')</script>\"><img src=x>&\x00"
    one = next(one for one in collected.measured if one.experiment.id == "time-epochs")
    made = {**MADE, "commit": hostile, "fingerprint": {"torch": hostile, "device": hostile}}
    experiment = replace(one.experiment, title=hostile, paper=hostile, about=hostile, notes=hostile)
    page = whole(
        render(replace(collected, measured=(Measured(experiment, [replace(r, made=made) for r in one.results]),)))
    )
    assert page.text.count("<script>alert") >= 5


def test_half_finished_results_are_shown_with_what_is_missing(collected: Collected) -> None:
    halves = tuple(Measured(one.experiment, one.results[::2]) for one in collected.measured)
    page = whole(render(replace(collected, measured=halves)))
    assert "What is missing" in page.text and "0 of 1\xa0seed" in page.text
    for one in halves:
        readme(one.experiment, one.results)


def test_the_order_of_lines_does_not_matter() -> None:
    there = read_all(FOLDER, ROOT / "results" / "reproduce", "full")
    back = tuple(Measured(one.experiment, list(reversed(one.results))) for one in there)
    assert claims(Collected("full", there)) == claims(Collected("full", back))


def test_expanded_labels_are_not_compared_with_baselines() -> None:
    (one,) = (
        m
        for m in read_all(FOLDER, ROOT / "results" / "reproduce", "full")
        if m.experiment.id == "effectiveness-ag-news"
    )
    without = Measured(one.experiment, [r for r in one.results if r.cell.system != "γ = 1"])
    b, c = (claims(Collected("full", (without,)))[number] for number in (1, 2))
    assert b.evidence == () and c.evidence == ()


def test_a_difference_is_beside_that_of_the_papers_own_table() -> None:
    (one,) = (
        m
        for m in read_all(FOLDER, ROOT / "results" / "reproduce", "full")
        if m.experiment.id == "effectiveness-ag-news"
    )
    said = {e.says: e.paper for e in claims(Collected("full", (one,)))[1].evidence}
    assert said["Other labels after forgetting, against Vanilla"] == "+0.63 points"
    assert said["Other labels before forgetting, against Vanilla"] == "−0.52 points"


def test_what_was_not_measured_is_not_drawn(collected: Collected) -> None:
    (full,) = (one for one in collected.measured if one.experiment.id == "time-epochs")
    first, *_, last = full.results
    assert (first.cell.system, last.cell.system) == ("U-shaped", "γ = 1")
    part = Measured(full.experiment, [first, last])
    assert [(c.name, c.only) for c in part.there.experiment.conditions] == [
        (one.cell.condition, (one.cell.system,)) for one in (first, last)
    ]
    assert [s.name for s in part.there.experiment.systems] == ["U-shaped", "γ = 1"]
    page = whole(render(replace(collected, measured=(part,))))
    missing = page.text.count("Vanilla: 0 of 1")
    assert missing == 3 and page.text.count("Vanilla") == missing


def test_a_damaged_line_is_named(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "smoke" / "kmeans.jsonl"
    path.parent.mkdir()
    lines = (folder / "smoke" / "kmeans.jsonl").read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([lines[0], "{nonsense", *lines[1:]]), encoding="utf-8")
    with pytest.raises(DataError, match=r"kmeans\.jsonl, line 2"):
        read_all(FOLDER, tmp_path, "smoke")
    path.write_text("\n".join([*lines, lines[0][:50]]), encoding="utf-8")  # cut short
    assert sum(len(one.results) for one in read_all(FOLDER, tmp_path, "smoke")) == 2 * len(lines)
    broken = {**json.loads(lines[1]), "values": {"attacks": 7}}
    path.write_text("\n".join([lines[0], json.dumps(broken)]), encoding="utf-8")
    with pytest.raises(DataError, match=r"kmeans\.jsonl, line 2"):
        read_all(FOLDER, tmp_path, "smoke")


@pytest.mark.parametrize("read", [read_tradeoff, read_comparison])
def test_damaged_files_of_other_commands(read: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    assert read(path) is None
    path.write_text('{"about": {}}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"lines\.jsonl, line 1"):
        read(path)
    path.write_text('{"about": ', encoding="utf-8")
    assert read(path) is None


@pytest.mark.parametrize("name", experiments(FOLDER))
def test_committed_readmes_are_what_committed_results_give(name: str) -> None:
    one = next(m for m in read_all(FOLDER, ROOT / "results/reproduce", "full") if m.experiment.id == name)
    path = FOLDER / name / "README.md"
    there = path.read_text(encoding="utf-8") if path.exists() else ""
    assert there == readme(one.experiment, one.results), f"{path} is out of date: run `splitwiper results --readmes`"
