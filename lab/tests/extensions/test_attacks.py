"""The contract of attacks, over built-in ones and those of `ward_lab`, somebody else's package."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from attacks.masked import federation, masked, plain
from evaluation.small import small
from splitwiper import Federation
from splitwiper.errors import ConfigError
from splitwiper_lab.attacks import Evidence, ServerView, Truth, load_attack, measure, suite
from splitwiper_lab.attacks.row_clusters import row_clusters
from splitwiper_lab.attacks.suite import ON_CODES

NAMES = {"entry point": "norms", "import path": "ward_lab.attacks:by_norm"}
ATTACKS: dict[str, Any] = {attack.__name__: attack for attack in ON_CODES}
ATTACKS |= {"row_clusters": partial(row_clusters, labels=3)}
ATTACKS |= {f"outside, by {how}": load_attack(name) for how, name in NAMES.items()}
Known = tuple[ServerView, Truth]


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return federation(tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture(scope="module")
def hidden(fed: Federation, tmp_path_factory: pytest.TempPathFactory) -> Known:
    return masked(fed, tmp_path_factory.mktemp("hidden") / "duplicate", "duplicate")


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_finds_the_same_again_and_can_be_scored(name: str, hidden: Known) -> None:
    view, truth = hidden
    first, again = (list(ATTACKS[name](Evidence(view, quick=True, seed=3))) for _ in range(2))
    assert first and [finding.attack for finding in first] == [finding.attack for finding in again]
    for one, other in zip(first, again, strict=True):
        result = measure(one, truth, view)
        assert one.attack and result == measure(other, truth, view)
        for score in (result.perfect, result.inclusive, result.pair_f1, result.sample_recovery):
            assert score is None or 0 <= score <= 1
        assert json.loads(json.dumps(result.to_dict()))["attack"] == one.attack


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_on_a_server_that_holds_nothing(name: str, tmp_path: Path) -> None:
    fed = federation(tmp_path / "run", clients=1, rows=60)
    fed.unlearn("c0", everything=True)
    view, truth = plain(fed)
    assert all(measure(finding, truth, view).strength < 0 for finding in ATTACKS[name](Evidence(view, quick=True)))


def test_the_suite_runs_it_with_and_without_the_number_of_labels(hidden: Known) -> None:
    view, truth = hidden
    results = suite(view, truth=truth, quick=True, aux=0, more=[load_attack("norms")])
    mine = [result for result in results if result.attack == "rows by size"]
    assert sorted(result.knows for result in mine) == ["", "Q"]  # whatever the attack says that it knew
    assert all(result.sample_recovery for result in mine)
    assert len(results) == len(suite(view, truth=truth, quick=True, aux=0)) + 2


def test_the_command_runs_it(tmp_path: Path, call, call_json) -> None:
    run, work = tmp_path / "run", small()
    Federation(run, config=work.config).learn(work.train)
    found = call_json("attack", run, "--quick", "--aux", 0, "--with", "norms")
    assert {one["knows"] for one in found if one["attack"] == "rows by size"} == {"", "Q"}
    assert "cannot be imported" in call("attack", run, "--with", "no_such_module:attack", code=2).stderr
    assert "Did you mean 'norms'" in call("attack", run, "--with", "norm", code=2).stderr
    assert "is not an attack" in call("attack", run, "--with", "ward_lab.attacks:greedy", code=2).stderr


def test_what_yields_no_findings_is_told(hidden: Known) -> None:
    view, truth = hidden
    with pytest.raises(ConfigError, match=r"'chatty' yields 'I found it\.'"):
        suite(view, truth=truth, quick=True, aux=0, more=[load_attack("ward_lab.attacks:chatty")])
