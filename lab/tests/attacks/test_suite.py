"""All attacks together, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from attacks.masked import SERVER, federation, plain
from splitwiper import ClientConfig, Config, Federation
from splitwiper_lab.attacks import ServerView, Truth, suite
from splitwiper_lab.attacks.report import HEADER, table, verdict
from splitwiper_lab.attacks.suite import AS_SEEN, GUESS

Known = tuple[ServerView, Truth]
KEYS = {"attack", "perfect", "inclusive", "pair_f1", "sample_recovery", "labels_estimated", "knows", "seconds", "notes"}


def test_the_suite_finds_copies_out_and_says_so(duplicate: Known) -> None:
    view, truth = duplicate
    told: list[tuple[str, int, int]] = []
    results = suite(view, truth=truth, quick=True, progress=lambda *step: told.append(step))
    strengths = [r.strength for r in results]
    assert strengths == sorted(strengths, reverse=True)
    assert results[0].perfect == results[0].sample_recovery == 1 and results[0].knows == ""
    assert told[-1][1] == told[-1][2] == len(told)
    for result in results:
        assert set(result.to_dict()) >= KEYS and json.loads(json.dumps(result.to_dict()))
    assert len({(r.attack, r.knows) for r in results}) == len(results)
    assert all(len(row) == len(HEADER) for row in table(results))
    words = verdict(results)
    assert words.startswith("The strongest attack (equal row counts) recovers the true label of 100.0\xa0% of the rows")


def test_the_suite_repeats_itself(one: Known) -> None:
    view, truth = one
    first, again = ([replace(r, seconds=0) for r in suite(view, truth=truth, quick=True, seed=4)] for _ in range(2))
    assert first == again


def test_the_verdict_on_keyed_codes_names_what_the_attacker_knew(keyed: Known) -> None:
    view, truth = keyed
    results = suite(view, truth=truth, quick=True)
    assert results[0].knows in ("Q", "aux")
    assert "told" in verdict(results) and "Without a hint" in verdict(results)
    assert "chosen by the true labels" in verdict(results)
    by_name = {r.attack: r for r in results}
    assert by_name[GUESS].sample_recovery is not None and by_name[GUESS].sample_recovery < 0.2
    assert by_name[AS_SEEN].sample_recovery is not None and by_name[AS_SEEN].sample_recovery < 0.7


def test_a_single_code_without_a_half_leaves_the_activations(one: Known) -> None:
    view, truth = one
    results = suite(view, truth=truth, quick=True, aux=0)
    assert all(r.knows != "aux" for r in results)
    assert {r.attack.split(",")[0] for r in results if (r.sample_recovery or 0) > 0.3} <= {
        "rows by activations",
        "3 cells a code by activations",
        "mixture with codes by activations",
    }
    assert all(r.perfect is None for r in results)


def test_a_server_with_nothing_finds_nothing(tmp_path: Path) -> None:
    fed = federation(tmp_path / "run", clients=1, rows=60)
    fed.unlearn("c0", everything=True)
    view, truth = plain(fed)
    results = suite(view, truth=truth, quick=True)
    assert all(r.strength < 0 for r in results) and "No attack applies" in verdict(results)


def test_coded_shards_and_named_labels_are_attacked_too(tmp_path: Path) -> None:
    base = federation(tmp_path / "base", clients=1, rows=60)
    fed = Federation(tmp_path / "run", base.halves, Config(server=SERVER, client=ClientConfig(epochs=1, codec="int4")))
    draw = np.random.default_rng(0)
    names = np.array(["eel", "owl", "bat"])[np.arange(90) % 3]
    x = (draw.normal(size=(90, 1, 8, 8)) + np.arange(90)[:, None, None, None] % 3).astype(np.float32)
    fed.learn({"a": (x[:50], names[:50]), "b": (x[50:], names[50:])}, tasks={"a": "zoo", "b": "zoo"})
    view, truth = plain(fed)
    assert view.outputs == 3 and sorted(view.numbers.values()) == [0, 1, 2]
    results = {(r.attack, r.knows): r for r in suite(view, truth=truth, quick=True)}
    assert results["code means, agglomerative", "Q"].perfect == 1
    assert (results["rows by output, k-means", "Q"].sample_recovery or 0) > 0.9
