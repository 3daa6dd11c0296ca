"""What people try first, and what they are told: each message says what to give instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from federation.runs import FEATURES, halves, settings
from splitwiper import Federation, split
from splitwiper.errors import SplitWiperError

X = np.random.default_rng(0).normal(size=(12, FEATURES)).astype(np.float32)
Y = np.arange(12) % 3


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    fed = Federation(tmp_path_factory.mktemp("run") / "run", halves(), settings())
    fed.learn({"north": (X, Y)})
    return fed


BY_NAME = r"give data by client name: \{'north': \(inputs, labels\)\}"
TRIED: list[tuple[Callable[[Federation], Any], str]] = [
    (lambda fed: fed.learn([(X, Y)]), rf"a list must hold pairs .*{BY_NAME}"),
    (lambda fed: fed.learn([X, Y]), BY_NAME),
    (lambda fed: fed.learn((X, Y)), BY_NAME),
    (lambda fed: fed.learn(None), BY_NAME),
    (lambda fed: fed.learn("rows.csv"), BY_NAME),
    (lambda fed: fed.learn(TensorDataset(torch.tensor(X), torch.tensor(Y))), "does not say whose data it is"),
    (lambda fed: fed.learn({1: (X, Y)}), "client name 1: use 1 to 64 letters"),
    (lambda fed: fed.learn({"south": (X, Y)}, tasks="species"), "must name the task of each client"),
    (lambda fed: fed.evaluate((X, Y)), BY_NAME),
    (lambda fed: fed.evaluate({"north": X}), "no labels"),
    (lambda fed: fed.unlearn("north", classes=0), r"must be a list of at least one label: classes=\[0\]"),
    (lambda fed: fed.unlearn("north", classes="a"), r"classes=\['a'\]"),
    (lambda fed: fed.unlearn("north", classes=["0"]), r"Labels are integers here: classes=\[0\]"),
    (lambda fed: fed.unlearn("north", everything="no"), "everything = 'no' must be True or False"),
    (lambda fed: fed.predict(X, "north"), r"there is no client array\(.{0,60}: names have letters"),
    (lambda fed: fed.predict("north", None), "give an array or a tensor"),
    (lambda fed: fed.predict("north", "new.csv"), r"is a path: read the file first.*read_inputs\(path\)"),
    (lambda fed: fed.predict("north", DataLoader(torch.tensor(X))), "inputs are a DataLoader: give an array"),
    (lambda fed: fed.predict("north", (X, Y)), "give the inputs alone, not a tuple of 2"),
    (lambda fed: fed.predict("north", X[0]), r"one row without a dimension that counts rows: give x\[None\]"),
    (lambda fed: fed.predict("north", X[:, :5]), f"rows have 5 columns, it learned from {FEATURES}"),
    (lambda fed: fed.verify(head=3), "must be a ledger's head"),
    (lambda fed: split(nn.Linear(2, 2), at=1, example=torch.zeros(1, 2)), "dotted name of a module"),
    (lambda fed: split(lambda x: x, at="0", example=torch.zeros(1, 2)), "a function; give an nn.Module"),
]


@pytest.mark.parametrize(("attempt", "words"), TRIED)
def test_what_people_try_first(fed: Federation, attempt: Callable[[Federation], Any], words: str) -> None:
    with pytest.raises(SplitWiperError, match=words) as error:
        attempt(fed)
    assert len(str(error.value)) < 400
    assert fed.status().todo == ()


def test_one_of_each_is_told_in_the_singular(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn({"north": (X[:1], Y[:1])})
    told = " ".join(check.detail for check in fed.verify().checks)
    assert "1 row of 1 shard" in told and "1 rows" not in told
