"""Partitions: who holds what, with no row lost, doubled or moved by the seed's repetition."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from splitwiper.errors import DataError
from splitwiper_lab.datasets.partition import KINDS, mixed, partition, rounded

NAMES = ("a", "b", "c", "d", "e")
TRAIN = np.repeat(np.arange(10), 20)
TEST = np.tile(np.arange(10), 8)
Array = np.ndarray[Any, np.dtype[Any]]


def holders(rows: dict[str, Array], labels: Array) -> dict[Any, list[str]]:
    return {label: [n for n in rows if label in labels[rows[n]]] for label in np.unique(labels).tolist()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("forget", [3, None])
def test_every_row_lies_with_one_client_every_time(kind: str, forget: int | None) -> None:
    for seed in range(20):
        parts = partition(kind, TRAIN, TEST, clients=NAMES, forget=forget, owner="b", seed=seed)
        again = partition(kind, TRAIN, TEST, clients=NAMES, forget=forget, owner="b", seed=seed)
        for part, same, labels in zip(parts, again, (TRAIN, TEST), strict=True):
            assert list(part) == list(NAMES)
            assert all(np.array_equal(part[n], same[n]) for n in NAMES)
            assert sorted(np.concatenate(list(part.values()))) == list(range(len(labels)))
            assert all(len(rows) for rows in part.values())
        assert holders(parts[0], TRAIN) == holders(parts[1], TEST)
        if forget is not None:
            assert holders(parts[0], TRAIN)[3] == ["b"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_matters(kind: str) -> None:
    one, two = (partition(kind, TRAIN, clients=NAMES, forget=3, owner="b", seed=seed)[0] for seed in (0, 1))
    assert any(not np.array_equal(one[n], two[n]) for n in NAMES)


def test_equal_clients_hold_as_much_of_every_label() -> None:
    labels = ["a", "b", "z"] * 40
    (rows,) = partition("equal", labels, clients=NAMES, forget="z", owner="c", seed=0)
    counts = {name: Counter(labels[row] for row in rows[name].tolist()) for name in NAMES}
    share = 40 // len(NAMES)
    for name, held in counts.items():
        assert all(abs(held[label] - share) <= 1 for label in "ab")
        assert held["z"] == (40 if name == "c" else 0)


def test_homogeneous_clients_hold_every_label_in_different_volumes() -> None:
    labels = np.repeat(np.array(["x", "y", "z"]), [1000, 500, 200])
    for seed in range(10):
        train, test = partition("homogeneous", labels, labels[::2], clients=NAMES, forget="z", owner="c", seed=seed)
        assert holders(train, labels) == {"x": list(NAMES), "y": list(NAMES), "z": ["c"]}
        x, y = (np.array([np.sum(labels[train[n]] == name) for n in NAMES]) for name in "xy")
        assert len(set(x.tolist())) == 5
        assert x.max() <= 4 * x.min() + 4
        assert np.abs(x - 2 * y).max() <= 4  # the same proportions for every label, give or take a row
        held = np.array([np.sum(labels[::2][test[n]] == "x") for n in NAMES])
        assert np.abs(x - 2 * held).max() <= 4  # and in every part


def test_overlapping_labels_lie_with_one_to_three() -> None:
    met = set()
    for seed in range(20):
        found = holders(partition("overlapping", TRAIN, clients=NAMES, forget=3, owner="b", seed=seed)[0], TRAIN)
        met |= {len(who) for label, who in found.items() if label != 3}
    assert met == {1, 2, 3}


EARLIER = {"a": [4, 5, 6, 7], "b": [1, 2, 3, 4, 8], "c": [0, 1, 6, 7], "d": [1, 5, 6, 7, 9], "e": [2]}
FIRST = [81, 82, 85, 86, 89]


def test_the_divided_digits_of_earlier_versions_are_divided_alike() -> None:
    (found,) = partition("overlapping", TRAIN, clients=NAMES, forget=3, owner="b", seed=7)
    assert {n: sorted(set(TRAIN[rows].tolist())) for n, rows in found.items()} == EARLIER
    assert found["a"][:5].tolist() == FIRST


@pytest.mark.parametrize("clients", [4, 5, 9, 10])
def test_more_clients_than_labels_may_overlap(clients: int) -> None:
    labels = np.repeat(np.array(["w", "s", "b", "t"]), 50)
    names = [f"c{n}" for n in range(clients)]
    for seed in range(10):
        (found,) = partition("overlapping", labels, clients=names, forget="s", owner="c1", seed=seed)
        who = holders(found, labels)
        assert who["s"] == ["c1"]
        assert all(1 <= len(some) <= 3 for some in who.values())
        assert all(len(rows) for rows in found.values())
        if clients < 10:  # ten are held by nine places and the owner's own
            assert len({*labels[found["c1"]]}) > 1


def test_disjoint_clients_share_nothing() -> None:
    for seed in range(10):
        (found,) = partition("disjoint", TRAIN, clients=NAMES, forget=3, owner="d", seed=seed)
        assert all(len(who) == 1 for who in holders(found, TRAIN).values())
        assert [len({*TRAIN[rows]}) for rows in found.values()] == [2] * 5
    (found,) = partition("disjoint", TRAIN, clients=tuple("abcdefghij"), forget=3, owner="d", seed=0)
    assert set(TRAIN[found["d"]]) == {3}


def test_a_shared_label_is_divided_like_any_other() -> None:
    (found,) = partition("homogeneous", TRAIN, clients=NAMES, forget=3, owner="b", seed=0, share=True)
    assert holders(found, TRAIN)[3] == list(NAMES)
    met = {
        len(
            holders(partition("overlapping", TRAIN, clients=NAMES, forget=3, owner="b", seed=s, share=True)[0], TRAIN)[
                3
            ]
        )
        for s in range(20)
    }
    assert met == {1, 2, 3}
    one, two = (
        partition("overlapping", TRAIN, clients=NAMES, forget=e, seed=4, share=s)[0]
        for e, s in ((3, True), (None, False))
    )
    assert all(np.array_equal(one[n], two[n]) for n in NAMES)


MANY = [f"c{n}" for n in range(40)]
REFUSED = {
    "kind": ("overlaping", {}, "Did you mean 'overlapping'"),
    "label": ("overlapping", {"forget": 11}, "there is no label 11"),
    "owner": ("overlapping", {"owner": "bb"}, "there is no client 'bb'."),
    "twice": ("overlapping", {"clients": ("a", "b", "a")}, "two clients are called 'a'"),
    "nobody": ("overlapping", {"clients": ()}, "there are no clients"),
    "many disjoint": ("disjoint", {"clients": MANY[:11], "owner": "c1"}, "11 clients are too many for 10 labels"),
    "many overlapping": ("overlapping", {"clients": MANY[:29], "owner": "c1"}, "29 clients are too many for 10 labels"),
    "few rows": ("homogeneous", {"clients": MANY[:21], "owner": "c1"}, "label 0 has 20 rows in part 1, fewer than"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_partitions_that_cannot_be(case: str) -> None:
    kind, given, words = REFUSED[case]
    with pytest.raises(DataError, match=words):
        partition(kind, TRAIN, **{"clients": NAMES, "forget": 3, "owner": "b", "seed": 0, **given})


def test_nobody_may_be_left_empty_in_any_part() -> None:
    rare = np.array([0, 1, 2])
    with pytest.raises(DataError, match=r"would hold no row of part 2 of 2; use fewer clients, more rows"):
        for seed in range(20):
            partition("overlapping", np.repeat(rare, 9), rare, clients=NAMES[:4], forget=0, owner="a", seed=seed)


def test_rounding_keeps_the_sum_and_the_least() -> None:
    draw = np.random.default_rng(0)
    for least in (0, 1):
        for total in range(8, 80):
            exact = draw.dirichlet(np.ones(8)) * total
            found = rounded(exact, total, least=least)
            assert found.sum() == total
            assert found.min() >= least
            assert least or np.abs(found - exact).max() < 1


def test_mixed_tasks() -> None:
    words = np.repeat(np.array(["x", "y", "z"]), 30)
    sets = {"digits": (TRAIN, TEST), "words": (words, words[::3])}
    clients = {"digits": ("a", "b", "c"), "words": ("d", "e")}
    found = mixed(sets, clients=clients, forget=("words", "y"), owner="e", seed=0)
    assert found.tasks == {"a": "digits", "b": "digits", "c": "digits", "d": "words", "e": "words"}
    train, test = found.rows
    assert sorted(np.concatenate([train[n] for n in "abc"])) == list(range(200))
    assert sorted(np.concatenate([test[n] for n in "de"])) == list(range(30))
    assert holders({n: train[n] for n in "de"}, words)["y"] == ["e"]
    with pytest.raises(DataError, match="two clients are called 'c'"):
        mixed(sets, clients={**clients, "words": ("c", "d")}, seed=0)
