"""Data that is asked for when its client's turn comes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from federation.runs import FEATURES, Table, assert_same, halves, settings, table, three
from splitwiper import Federation
from splitwiper.errors import DataError


def new(path: Path) -> Federation:
    return Federation(path, halves(), settings(keys="seeded"))


class Asked:
    """A source that gives the answers in turn, the last one for ever; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.times = answers, 0

    def __call__(self) -> Any:
        self.times += 1
        answer = self.answers[min(self.times, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_the_same_bits_as_from_memory(tmp_path: Path) -> None:
    plain, lazy = new(tmp_path / "plain"), new(tmp_path / "lazy")
    sources = {name: Asked(data) for name, data in three().items()}
    assert lazy.learn(sources).added == plain.learn(three()).added
    assert_same(plain, lazy)
    assert [source.times for source in sources.values()] == [2, 2, 2]


def test_one_clients_rows_at_a_time(tmp_path: Path) -> None:
    given: list[weakref.ref[Any]] = []

    def source(data: Table) -> Callable[[], Table]:
        def ask() -> Table:
            assert all(ref() is None for ref in given)
            inputs = data[0].copy()
            given.append(weakref.ref(inputs))
            return inputs, data[1]

        return ask

    new(tmp_path / "run").learn((name, source(data)) for name, data in three().items())
    assert len(given) == 6


def test_a_dataset_may_come_of_it(tmp_path: Path) -> None:
    data = TensorDataset(torch.randn(6, FEATURES), torch.tensor([0, 1] * 3))
    fed = new(tmp_path / "run")
    assert fed.learn({"north": lambda: data}).added["north"].new == 6
    assert fed.verify().exact


@pytest.mark.parametrize("answer", [FileNotFoundError("no such volume"), None, (np.zeros((2, 3), np.float32), [0, 1])])
def test_bad_at_the_first_asking_nothing_is_kept(tmp_path: Path, answer: Any) -> None:
    fed = new(tmp_path / "run")
    with pytest.raises(DataError, match=r"no such volume.*learn again|NoneType|cannot take rows"):
        fed.learn({"north": Asked(three()["north"]), "south": Asked(answer)})
    assert fed.clients == ()
    assert fed.status().todo == ()


@pytest.mark.parametrize("answer", [OSError("unplugged"), None, (np.full((2, FEATURES), np.nan), ["cat", "dog"])])
@pytest.mark.parametrize("known", [False, True])
def test_bad_at_the_second_asking_the_client_is_as_it_was(tmp_path: Path, answer: Any, known: bool) -> None:
    fed, data = new(tmp_path / "run"), three()
    if known:
        fed.learn({"south": table(9, ("cat", "dog"), 8)})
    rows = fed.rows("south") if known else {}
    with pytest.raises(DataError, match=r"unplugged|NoneType|NaN"):
        fed.learn({"north": data["north"], "south": Asked(data["south"], answer), "west": data["west"]})
    assert fed.clients == (("north", "south") if known else ("north",))
    assert (fed.rows("south") if known else {}) == rows
    assert fed.status().todo[0] == "finish the work of client north"
    fed.settle()
    assert fed.verify().exact
    fed.learn(data)  # and once the source is well again, it is as if nothing had been
    never = new(tmp_path / "never")
    if known:
        never.learn({"south": table(9, ("cat", "dog"), 8)})
    never.learn(data)
    assert_same(fed, never)


def test_other_rows_at_the_second_asking_are_the_ones_learned(tmp_path: Path) -> None:
    fed, never = new(tmp_path / "run"), new(tmp_path / "never")
    first, second = table(1, ("bird", "cat"), 12), table(2, ("cat", "dog"), 16)
    assert fed.learn({"north": Asked(first, second)}).added["north"].new == 16
    never.learn({"north": second})
    assert fed.verify().exact
    assert_same(fed, never)


def test_rows_that_a_function_changes_at_random_are_refused(tmp_path: Path) -> None:
    fed, (x, y), draw = new(tmp_path / "run"), three()["north"], np.random.default_rng(0)
    with pytest.raises(DataError, match=r"'north' are others when they are asked for again.*augmentation"):
        fed.learn({"north": lambda: (x + draw.normal(size=x.shape).astype(np.float32), y)})
    assert fed.clients == ()


def test_forgotten_rows_stay_away(tmp_path: Path) -> None:
    fed, data = new(tmp_path / "run"), three()
    fed.learn(data)
    fed.unlearn("north", classes=["bird"])
    assert fed.learn({"north": Asked(table(7, ("cat",), 4), data["north"])}).added["north"].refused == 10
    assert "bird" not in fed.rows("north").values()
