"""The contract of systems in a comparison, over built-in ones and those of `ward_lab`, somebody else's package."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.small import CLIENTS, small
from splitwiper.errors import ConfigError, TrainingError
from splitwiper_lab.baselines import Cost, Problem
from splitwiper_lab.evaluation.comparison import Record, compared, exposures, read_comparison, stage, summary

SYSTEMS: dict[str, dict[str, Any]] = {
    "splitwiper": {"kind": "splitwiper"},
    "vanilla": {"kind": "vanilla"},
    "u-shaped": {"kind": "u-shaped", "unlearning": ["fine-tuning"]},
    "splitfed-v2": {"kind": "splitfed-v2"},
    "sisa": {"kind": "sisa", "shards": 2},
    "outside system": {"kind": "neighbours", "args": {"nearest": 5}},
    "outside framework": {"kind": "ward_lab.methods:Halved", "args": {"part": 0.25}},
    "outside method": {"kind": "vanilla", "unlearning": [{"method": "shrinking", "epochs": 1, "clients": 2}]},
}


def run(system: dict[str, Any], **more: Any) -> Record:
    comparison = read_comparison({"systems": [system], **more})
    (record,) = compared(stage(small(), comparison), comparison)
    return record


def measured(record: Record) -> tuple[Any, ...]:
    """What does not depend on the machine's speed."""
    phases = []
    for phase in (record.learned, record.unlearned):
        bytes_of = {name: cost.traffic for name, cost in phase.spent.items()}
        phases.append((phase.retained, phase.forgotten, bytes_of, phase.took_part))
    return record.system, record.exact, *phases


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_learns_forgets_and_says_what_it_cost(name: str) -> None:
    record = run(SYSTEMS[name])
    assert set(record.learned.spent) == set(CLIENTS) >= set(record.learned.took_part)
    assert set(record.unlearned.took_part) <= set(CLIENTS)
    for phase in (record.learned, record.unlearned):
        for cost in (*phase.spent.values(), *phase.preparing.values(), phase.server):
            assert all(value >= 0 for value in vars(cost).values())
    assert sum(cost.bytes_up for cost in record.learned.spent.values()) > 0
    assert record.learned.retained is not None and 0 <= record.learned.retained <= 1 and record.away is not None
    if record.exact:  # only north held any threes
        assert record.unlearned.forgotten == 0 and record.proof
    again = Record.from_dict(json.loads(json.dumps(record.to_dict())))
    assert replace(again, membership=()) == record and summary([again], bandwidth=1e8)[0].exact is record.exact


@pytest.mark.parametrize("name", [name for name in SYSTEMS if "outside" in name])
def test_a_system_is_repeatable(name: str) -> None:
    assert measured(run(SYSTEMS[name])) == measured(run(SYSTEMS[name]))


def test_exact_is_what_the_laboratory_recomputed() -> None:
    honest = run(SYSTEMS["outside system"])
    assert honest.exact and honest.proof == "recomputed, the same answers bit for bit"
    assert honest.unlearned.took_part == ("north",) and honest.away == {
        "client": "south",
        "went_on": True,
        "said": "",
    }
    liar = run({"kind": "ward_lab.baselines:Remembers"})
    assert not liar.exact and not liar.proof and liar.unlearned.forgotten


def test_a_framework_from_outside_forgets_like_others() -> None:
    retrained = run(SYSTEMS["outside framework"])
    assert retrained.exact and retrained.unlearning == "retraining"
    assert len(retrained.unlearned.took_part) == 3 and retrained.away and not retrained.away["went_on"]
    whole = run({"kind": "ward_lab.methods:Halved", "args": {"part": 1.0}})
    assert whole.learned.retained != retrained.learned.retained
    vanilla = run({"kind": "vanilla"})
    assert {name: cost.traffic for name, cost in whole.learned.spent.items()} == {
        name: cost.traffic for name, cost in vanilla.learned.spent.items()
    }


def test_a_method_from_outside_needs_the_clients_it_names() -> None:
    record = run(SYSTEMS["outside method"])
    assert record.unlearning == "shrinking" and len(record.unlearned.took_part) == 2 and not record.exact


def test_membership_inference_of_a_system_from_outside() -> None:
    record = run(SYSTEMS["outside system"], membership={"shadow": 0.4, "shadows": 2})
    assert {one["attack"] for one in record.membership} >= {"two models", "labels only"}
    assert all(one.verdict == "equal" for one in exposures([record]) if one.difference is not None)


def test_a_system_from_outside_forgets_a_whole_client() -> None:
    record = run(SYSTEMS["outside system"], level="client")
    assert record.exact and set(record.unlearned.spent) == {"east", "south"}


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ({"kind": "neighbors"}, "'neighbors' is not a system"),
        ({"kind": "no_such_module:System"}, "cannot be imported"),
        ({"kind": "ward_lab.baselines:Missing"}, "cannot be imported"),
        ({"kind": "ward_lab.baselines:table_of"}, "is not a class"),
        ({"kind": "ward_lab.baselines:Pool"}, "does not take the settings"),
        ({"kind": "builtins:dict"}, "has no method 'learn'"),
        ({"kind": "neighbours", "args": {"neighbours": 3}}, "does not take the settings"),
        ({"kind": "neighbours", "args": 3}, "must be a table"),
        ({"kind": "neighbours", "nearest": 3}, "go into args"),
        ({"kind": "ward_lab.methods:Halved", "args": {"parts": 2}}, "does not take the settings"),
        ({"kind": "vanilla", "unlearning": ["ward_lab.baselines:Neighbours"]}, "has no method 'unlearn'"),
        ({"kind": "vanilla", "unlearning": ["no_such_module:Method"]}, "cannot be imported"),
    ],
)
def test_what_is_no_system_is_refused_before_anything_is_trained(system: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_comparison({"systems": [system]})


@pytest.mark.parametrize(
    ("name", "words"), [("Stranger", "costs are of"), ("Speechless", r"is not rows × \d+ probabilities")]
)
def test_a_system_that_breaks_its_word_is_told(name: str, words: str) -> None:
    with pytest.raises(TrainingError, match=words):
        run({"kind": f"ward_lab.baselines:{name}"})


def test_results_of_other_code_are_not_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a sweep would mix in what an older version of a baseline did."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    text = "class Mine:\n    def learn(self, problem, *, on_epoch=None):\n        return 1\n"

    def digest() -> str:
        (system,) = read_comparison({"systems": [{"kind": "mine_to_change:Mine"}]}).systems
        return system.ways["mine_to_change:Mine"]

    (tmp_path / "mine_to_change.py").write_text(text, encoding="utf-8")
    before = digest()
    assert digest() == before
    (tmp_path / "mine_to_change.py").write_text(text.replace("return 1", "return 1 + 1"), encoding="utf-8")
    importlib.invalidate_caches()
    importlib.reload(sys.modules["mine_to_change"])
    assert digest() != before


def test_built_in_systems_have_the_digests_that_results_were_recorded_with() -> None:
    (ours,) = read_comparison({"systems": ["splitwiper"]}).systems
    (vanilla,) = read_comparison({"systems": [{"kind": "vanilla"}]}).systems
    assert "origin" not in repr(ours) and "baseline" not in repr(vanilla)


def test_rows_are_shown_without_what_identifies_them() -> None:
    problem = Problem.of_workload(small())
    held = problem.clients["north"]
    (values,) = held.inputs.values()
    assert len(values) == len(held.codes) == len(held) and np.max(held.codes) < len(held.labels)
    assert Cost() + Cost(bytes_up=3) == Cost(bytes_up=3)
