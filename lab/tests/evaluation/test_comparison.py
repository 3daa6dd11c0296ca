"""A comparison: who pays for forgetting in each system, and how that is added up."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.small import CLIENTS, EXACT, OTHERS, ROOT, SPLIT, SYSTEMS, Found, M, compare, settings, small
from splitwiper.client.content import row_id, row_macs
from splitwiper.data.rows import as_rows
from splitwiper.errors import ConfigError
from splitwiper.federation import Federation
from splitwiper.wire import Spent
from splitwiper_lab.baselines import Cost
from splitwiper_lab.baselines.unlearning import METHODS, Retraining
from splitwiper_lab.evaluation.comparison import (
    Phase,
    Record,
    compared,
    running,
    stage,
    summary,
)
from splitwiper_lab.evaluation.comparison import splitwiper as ours


def test_splitwiper_takes_the_requester_alone(found: Found) -> None:
    record = found["splitwiper", "splitwiper"]
    assert all(cost.seconds > 0 and cost.bytes_up > 0 and cost.flops > 0 for cost in record.learned.spent.values())
    assert set(record.learned.spent) == set(record.unlearned.spent) == set(CLIENTS)
    assert record.unlearned.cost(OTHERS, epochs=1) == Cost()
    assert record.unlearned.took_part == ("north",)
    mine = record.unlearned.cost(["north"], epochs=1)
    assert mine.seconds > 0 and mine.flops > 0 and mine.bytes_up > 0 and mine.bytes_down == 0
    assert record.unlearned.forgotten == 0
    assert record.exact and record.proof == "recomputed, bit for bit"
    assert record.away == {"client": "south", "went_on": True, "said": ""}


@pytest.mark.parametrize(
    ("kind", "way"), [*((kind, "retraining") for kind in SPLIT), *(("vanilla", way) for way in METHODS)]
)
def test_split_learning_needs_everybody(found: Found, kind: str, way: str) -> None:
    record = found[kind, way]
    assert record.unlearned.took_part == CLIENTS
    assert all(record.unlearned.spent[name].traffic > 0 for name in CLIENTS)
    assert record.away is not None and record.away["client"] == "south" and not record.away["went_on"]
    said = record.away["said"]
    assert f"{way} on {kind} needs 'south'" in said and "Wait until all are back" in said and "'north' alone" in said


def test_only_retraining_is_exact(found: Found) -> None:
    exact = {key for key, record in found.items() if record.exact}
    assert exact == EXACT | {(kind, "retraining") for kind in SPLIT}
    for key, record in found.items():
        assert bool(record.proof) == (key in exact)
    assert found["vanilla", "retraining"].unlearned.forgotten == 0


def test_ascent_that_retains_nothing_needs_the_requester_alone(found: Found) -> None:
    record = found["ascent alone", "gradient-ascent"]
    assert record.unlearned.took_part == ("north",) and not record.exact
    assert record.away == {"client": "south", "went_on": True, "said": ""}
    assert record.unlearned.cost(OTHERS, epochs=1).traffic == 0


def test_sisa_in_one_place_asks_nobody(found: Found) -> None:
    record, rows = found["sisa", "sisa"], small().train
    assert {name: cost.bytes_up for name, cost in record.learned.spent.items()} == {
        name: len(labels) * (8 * 8 * 4 + 4) for name, (_, labels) in rows.items()
    }
    assert record.unlearned.took_part == () and record.unlearned.cost(CLIENTS, epochs=1) == Cost()
    assert record.unlearned.server.seconds > 0 and record.unlearned.server.flops > 0
    assert record.away is not None and record.away["went_on"]


def test_the_requester_sends_its_rows_once_and_vanilla_in_every_epoch_there_and_back(found: Found) -> None:
    mine = found["splitwiper", "splitwiper"].unlearned.spent["north"].traffic
    for way in ("retraining", "fine-tuning"):
        epochs = {"retraining": M, "fine-tuning": 1}[way]
        epoch = found["vanilla", way].unlearned.spent["north"].traffic / epochs
        assert mine == pytest.approx(epoch / 2, rel=0.01)
    assert mine <= 1.1 / M * found["vanilla", "retraining"].unlearned.spent["north"].traffic
    forward = small().train["north"][1] != "three"
    assert mine == pytest.approx(forward.sum() * 16 * 8 * 8 * 4, rel=0.01)  # one float32 map per row that stays


def test_the_absent_client_is_out_of_reach_while_splitwiper_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    unlearn, there = Federation.unlearn, []

    def watched(self: Federation, *args: Any, **named: Any) -> Any:
        there.append({name for name in CLIENTS if (self.path / "clients" / name).exists()})
        return unlearn(self, *args, **named)

    monkeypatch.setattr(Federation, "unlearn", watched)
    (record,) = compare(small(), settings('absent = "east"\nsystems = ["splitwiper"]')).values()
    assert there == [{"north", "south"}] and record.exact
    assert record.away == {"client": "east", "went_on": True, "said": ""}


def test_seconds_are_told_apart() -> None:
    """Pre-training by itself, embedding as computing, all else as files; nothing for who did nothing."""
    at = stage(small(), settings(""))
    slow = dataclasses.replace(at.starts["north"], cost=Cost(seconds=2.0))
    spent = {"north": Spent(seconds=50.0, bytes_up=7), "east": Spent(seconds=1e-9, bytes_up=7), "south": Spent()}
    found = ours._costs(spent, at.problem, {**at.starts, "north": slow})
    assert found["north"].handling == pytest.approx(48 - found["north"].seconds) and found["north"].bytes_up == 7
    assert found["north"].flops == len(at.problem.clients["north"]) * at.problem.halves.flops[0]
    assert found["east"].handling == 0 and found["south"] == Cost()


def test_clients_bytes_grow_with_epochs_in_vanilla_and_not_here() -> None:
    text = 'systems = ["splitwiper", "vanilla"]'
    grown = {epochs: compare(small(epochs=epochs), settings(text)) for epochs in (1, 3)}
    for name in CLIENTS:
        once, thrice = (grown[epochs]["vanilla", "retraining"].unlearned.spent[name].traffic for epochs in (1, 3))
        assert thrice == pytest.approx(3 * once, rel=1e-3)
    once, thrice = (grown[epochs]["splitwiper", "splitwiper"].unlearned.spent for epochs in (1, 3))
    assert {name: cost.traffic for name, cost in once.items()} == {name: cost.traffic for name, cost in thrice.items()}


def test_systems_start_from_the_same_rows_and_pre_training(found: Found) -> None:
    assert {record.requester for record in found.values()} == {"north"}
    assert {json.dumps(record.epochs) for record in found.values()} == {'{"server": 2, "client": 1}'}
    same = [found[key].learned.preparing for key in (("splitwiper", "splitwiper"), *((k, "retraining") for k in SPLIT))]
    assert all(one == same[0] for one in same) and all(cost.flops > 0 for cost in same[0].values())
    again = [found[key].unlearned.preparing for key in (("splitwiper", "splitwiper"), ("vanilla", "retraining"))]
    assert all(one["north"].flops > 0 and one["east"] == one["south"] == Cost() for one in again)


def test_records_come_back_from_json(found: Found) -> None:
    for record in found.values():
        written = json.dumps(record.to_dict())
        again = Record.from_dict({**json.loads(written), "said by a later version": 1})
        assert json.dumps(again.to_dict()) == written
        assert (again.learned, again.unlearned, again.key) == (record.learned, record.unlearned, record.key)


def test_what_is_done_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = settings('systems = ["splitwiper", {kind = "vanilla", unlearning = ["retraining", "fine-tuning"]}]')
    at = stage(small(), comparison)
    monkeypatch.setattr(running, "_ours", _never)
    monkeypatch.setattr(Retraining, "unlearn", _never)
    only = {("vanilla, interleaved", "fine-tuning", 0)}
    assert [r.unlearning for r in compared(at, comparison, only=only)] == ["fine-tuning"]
    other_seed = {(system, way, 1) for system, way, _ in only}
    assert list(compared(at, comparison, only=other_seed)) == []
    with pytest.raises(AssertionError, match="computed"):
        list(compared(at, comparison))


def _never(*_args: Any, **_named: Any) -> Any:
    raise AssertionError("computed")


# summaries


def _record(system: str, *, seed: int = 0, way: str = "retraining", factor: float = 1.0, **more: Any) -> Record:
    cost = Cost(seconds=factor, flops=round(100 * factor), bytes_up=round(1000 * factor), bytes_down=0)
    prepared = Cost(seconds=4 * factor, flops=round(400 * factor))
    phase = Phase(
        0.9, 0.5, dict.fromkeys(CLIENTS, cost), {"north": prepared}, Cost(seconds=7.0, storage=8), more.pop("took", ())
    )
    left = dataclasses.replace(phase, retained=0.8 + 0.1 * seed, forgotten=None if seed else 0.25)
    return Record(
        system, system, way, seed, "north", {"server": M, "client": 4}, phase, left, more.pop("exact", True), "", **more
    )


def test_costs_are_added_up_with_the_last_epoch_of_pre_training_and_with_all() -> None:
    away = {"client": "south", "went_on": True, "said": ""}
    records = [
        _record("splitwiper", way="splitwiper", factor=0.5, away=away, took=("north",)),
        _record("vanilla", away={**away, "went_on": False}, took=CLIENTS),
        _record("vanilla", way="fine-tuning", factor=9.0, took=CLIENTS, exact=False),
    ]
    mine, vanilla, tuned = summary(records, bandwidth=8000.0)
    assert (mine.requester_seconds.mean, mine.requester_sending.mean) == (0.5 + 4 * 0.5 / 4, 0.5)
    assert (mine.others_seconds.mean, mine.others_sending.mean) == (1.0, 1.0)
    assert (mine.requester_bytes.mean, mine.others_bytes.mean) == (500, 1000)
    assert (vanilla.requester_seconds.mean, vanilla.requester_sending.mean) == (2.0, 1.0)
    assert [s.mean for s in mine.share_of_vanilla] == [1.5 / 3, (0.5 + 2 + 0.5) / (1 + 4 + 1)]
    assert [s.mean for s in mine.share_of_all] == [3.5 / 7, 5 / 10]
    assert [s.mean for s in mine.flops_of_vanilla] == [0.5, 0.5]
    assert [s.mean for s in vanilla.share_of_vanilla] == [1, 1] and tuned.share_of_vanilla[0].mean == 9
    assert (mine.took_part, vanilla.took_part) == ((1, 3), (3, 3))
    assert (mine.away, vanilla.away, tuned.away) == (True, False, None)
    assert (mine.exact, tuned.exact) == (True, False)
    assert (mine.server_seconds.mean, mine.server_storage.mean) == (7, 8)


def test_seeds_give_deviations_and_one_failure_counts() -> None:
    records = [
        _record("vanilla", seed=seed, exact=not seed, away={"client": "south", "went_on": not seed, "said": ""})
        for seed in (0, 1)
    ]
    (line,) = summary(records, bandwidth=1e6)
    assert line.seeds == 2 and not line.exact and line.away is False
    assert line.retained.mean == pytest.approx(0.85) and line.retained.deviation == pytest.approx(0.1 / np.sqrt(2))
    assert (line.forgotten.mean, line.forgotten.deviation, line.forgotten.count) == (0.25, None, 1)


def test_shares_are_of_the_same_seed_and_missing_without_vanilla() -> None:
    records = [_record("splitwiper", seed=seed, way="splitwiper", factor=1.0) for seed in (0, 1)]
    (line,) = summary(records, bandwidth=1e6)
    assert line.share_of_vanilla[0].mean is None and str(line.share_of_vanilla[0]) == "–"
    line, _ = summary([*records, _record("vanilla", seed=1, factor=2.0)], bandwidth=1e6)
    assert (line.share_of_vanilla[0].mean, line.share_of_vanilla[0].count) == (0.5, 1)


# levels, masking


def test_some_rows_are_forgotten_and_everywhere_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = settings('level = "sample"\ndelta = 0.4\nsystems = ["splitwiper", "vanilla"]')
    work, left = small(), []
    unlearn = ours.unlearn

    def watched(*args: Any, **named: Any) -> ours.Ours:
        after = unlearn(*args, **named)
        key = bytes.fromhex((after.federation.path / "clients" / "north" / "key").read_text())
        ids = [row_id(mac) for mac in row_macs(as_rows(work.train["north"], task=""), key)]
        left.extend(place for place, number in enumerate(ids) if number in after.federation.rows("north"))
        return after

    monkeypatch.setattr(ours, "unlearn", watched)
    at = stage(work, comparison)
    records = list(compared(at, comparison))
    images, labels = work.train["north"]
    threes = np.asarray(labels) == "three"
    assert len(labels) - len(left) == round(0.4 * threes.sum()) == at.forgetting.rows > 1
    assert all(threes[row] for row in range(len(labels)) if row not in left)
    held = at.left.clients["north"]
    assert {images[row].tobytes() for row in left} == {
        row.tobytes() for row in np.asarray(held.shard.columns[held.names[0]])
    }
    assert all(record.exact and record.unlearned.forgotten is not None for record in records)
    assert records[0].unlearned.cost(OTHERS, epochs=1) == Cost()


def test_a_client_that_leaves_is_scored_no_more() -> None:
    found = compare(small(), settings('level = "client"\n' + SYSTEMS))
    for (kind, way), record in found.items():
        assert record.learned.forgotten is not None and record.unlearned.forgotten is None
        assert record.unlearned.took_part == {
            "splitwiper": ("north",),
            "ascent alone": ("north",),
            "sisa": (),
        }.get(kind, OTHERS if way in ("retraining", "fine-tuning") else CLIENTS)
    mine = found["splitwiper", "splitwiper"]
    assert mine.exact and mine.unlearned.cost(CLIENTS, epochs=1).traffic == 0
    assert mine.unlearned.cost(OTHERS, epochs=1) == Cost()
    assert found["vanilla", "retraining"].unlearned.cost(["north"], epochs=1) == Cost()


def test_masked_labels_and_noise_are_as_exact() -> None:
    text = """
[[systems]]
kind = "splitwiper"
masking = {mode = "partition", gamma = 2}

[[systems]]
kind = "splitwiper"
name = "twice"
masking = {mode = "duplicate", gamma = 2}

[[systems]]
kind = "splitwiper"
name = "noisy"
noise = {mechanism = "laplace", epsilon = 8, clip = 1}
"""
    comparison = settings(text)
    assert [system.name for system in comparison.systems] == ["splitwiper+", "twice", "noisy"]
    once, twice, noisy = compare(small(), comparison).values()
    for record in (once, twice, noisy):
        assert record.exact and record.proof == "recomputed, bit for bit" and record.unlearned.forgotten == 0
        assert record.unlearned.cost(OTHERS, epochs=1) == Cost() and record.unlearned.took_part == ("north",)
    assert twice.unlearned.spent["north"].bytes_up == pytest.approx(2 * once.unlearned.spent["north"].bytes_up, rel=0.1)


def test_whoever_is_named_is_away_else_the_last() -> None:
    text = '[[systems]]\nkind = "vanilla"'
    for absent, away in (("", "south"), ("east", "east")):
        record = compare(small(), settings(f'absent = "{absent}"\n{text}'))["vanilla", "retraining"]
        assert record.away is not None and record.away["client"] == away and f"needs {away!r}" in record.away["said"]


# settings


def test_systems_are_named_after_what_they_are() -> None:
    text = """
systems = [
  "splitwiper", "vanilla", {kind = "vanilla", schedule = "turns"}, {kind = "vanilla", synchronise = "average"},
  "u-shaped", "splitfed-v1", {kind = "splitfed-v2", synchronise = "average"}, {kind = "sisa", slices = 3},
  {kind = "sisa", name = "central", unlearning-not-here = 0},
]
"""
    with pytest.raises(ConfigError, match=r"unknown key 'compare.systems\[8\].unlearning-not-here'"):
        settings(text)
    comparison = settings(text.replace(", unlearning-not-here = 0", ""))
    assert [system.name for system in comparison.systems] == [
        "splitwiper",
        "vanilla, interleaved",
        "vanilla, turns",
        "vanilla, interleaved, synchronised",
        "u-shaped, interleaved",
        "splitfed-v1, turns",
        "splitfed-v2, turns",
        "sisa, 5 shards × 3 slices",
        "central",
    ]
    assert [system.kind for system in settings("").systems] == ["splitwiper", "vanilla"]
    assert list(settings("").systems[1].ways) == ["retraining"]


# the example, as a user runs it


@pytest.mark.soak
@pytest.mark.timeout(240)
def test_the_example_shows_what_forgetting_costs_whom(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("splitwiper")
    example = ROOT / "examples" / "compare" / "digits.toml"
    began = time.monotonic()
    done = subprocess.run(
        [program, "compare", example, "--out", tmp_path, "--commit", "soak"],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "COLUMNS": "80"},
    )
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    assert "splitwiper: the requester spends" in done.stdout
    lines = [json.loads(line) for line in (tmp_path / "compare.jsonl").read_text(encoding="utf-8").splitlines()]
    records = [Record.from_dict(line["values"]) for line in lines]
    assert len({record.key for record in records}) == len(records) == 22  # eleven ways of eight systems, two seeds
    epochs = tomllib.loads(example.read_text(encoding="utf-8"))["server"]["epochs"]
    by = {(r.system, r.unlearning, r.seed): r for r in records}
    for seed in (0, 1):
        mine = by["splitwiper", "splitwiper", seed]
        vanilla = by["vanilla, interleaved", "retraining", seed]
        others = [name for name in mine.learned.spent if name != "north"]
        assert len(others) == 4 and mine.unlearned.cost(others, epochs=1) == Cost()
        assert mine.unlearned.took_part == ("north",) and mine.exact and mine.unlearned.forgotten == 0
        spent, theirs = mine.unlearned.spent["north"].traffic, vanilla.unlearned.spent["north"].traffic
        assert 0 < spent <= 1.1 / epochs * theirs
        share = mine.unlearned.spent["north"].flops / sum(c.flops for c in mine.learned.spent.values())  # of all rows
        every = vanilla.unlearned.cost(list(vanilla.unlearned.spent), epochs=0).traffic
        assert mine.unlearned.cost(list(mine.unlearned.spent), epochs=0).traffic <= 1.1 / epochs * share * every
    found = {(line.system, line.unlearning): line for line in summary(records, bandwidth=100e6)}
    for key in (
        ("splitwiper", "splitwiper"),
        ("vanilla, interleaved", "retraining"),
        ("u-shaped, interleaved", "retraining"),
    ):
        line = found[key]
        assert (line.retained_learned.mean or 0) >= 0.95 and (line.retained.mean or 0) >= 0.95
        assert (line.forgotten_learned.mean or 0) >= 0.95 and line.forgotten.mean == 0 and line.exact
        assert line.retained.deviation is not None
    mine = found["splitwiper", "splitwiper"]
    assert (mine.share_of_vanilla[0].mean or 1) < 0.2 and (mine.share_of_all[0].mean or 1) < 0.05
    for line in found.values():
        if line.kind not in ("splitwiper", "sisa"):
            assert line.took_part == (5, 5) and line.away is False
            assert line.exact == (line.unlearning == "retraining")
    text = (tmp_path / "compare.md").read_text(encoding="utf-8")
    assert "| 0 ± 0 + 0 ± 0 | 1 of 5 | goes on | yes |" in text and "| 5 of 5 | stops | yes |" in text
    assert seconds < 120, f"the example took {seconds:.0f} s"
