"""Tables whose columns have names: no column is taken for another, whatever order a file has them in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from federation.runs import FEATURES, assert_same, halves, settings, table
from splitwiper import Federation, split
from splitwiper.data.tables import Table
from splitwiper.errors import DataError

NAMES = ("age", "weight", "height", "pulse", "sugar", "iron")
ORDER = [3, 1, 5, 0, 4, 2]


def named(seed: int, order: list[int] | None = None, rows: int = 24) -> tuple[Table, np.ndarray]:
    x, y = table(seed, ("cat", "dog"), rows)
    places = order or list(range(FEATURES))
    return Table(tuple(NAMES[place] for place in places), x[:, places]), y


def new(path: Path) -> Federation:
    return Federation(path, halves(), settings(keys="seeded"))


@pytest.fixture
def fed(tmp_path: Path) -> Federation:
    fed = new(tmp_path / "run")
    fed.learn({"north": named(1)})
    return fed


def test_columns_in_another_order_are_the_same_rows(fed: Federation) -> None:
    x, y = named(2)
    turned, _ = named(2, ORDER)
    assert fed.predict("north", turned) == fed.predict("north", x)
    assert np.array_equal(fed.predict_proba("north", turned), fed.predict_proba("north", x))
    assert fed.evaluate({"north": (turned, y)}) == fed.evaluate({"north": (x, y)})
    assert fed.learn({"north": named(1, ORDER)}).added["north"].held == 24


def test_forgotten_rows_are_known_in_any_order(fed: Federation) -> None:
    fed.unlearn("north", classes=["cat"])
    assert fed.learn({"north": named(1, ORDER)}).added["north"].refused == 12
    fed.unlearn("north", everything=True)
    assert fed.learn({"north": named(1, ORDER)}).added["north"].refused == 24


def test_other_columns_are_named(fed: Federation) -> None:
    x, y = named(2)
    index = Table(("row", *NAMES), np.hstack([np.zeros((24, 1), np.float32), x.values]))
    for call in (lambda: fed.predict("north", index), lambda: fed.learn({"north": (index, y)})):
        with pytest.raises(DataError, match=r"there are 7 columns, it learned from 6: 'row' is unknown"):
            call()
    misspelt = Table((*NAMES[:-1], "irn"), x.values)
    with pytest.raises(DataError, match=r"'iron' is missing; 'irn' is unknown \(Did you mean 'iron'\?\)"):
        fed.predict("north", misspelt)
    with pytest.raises(DataError, match=r"'age' is there 2 times"):
        fed.predict("north", Table(("age", *NAMES), index.values))


def test_a_table_that_does_not_fit_the_model(tmp_path: Path) -> None:
    x, y = named(2)
    wide = Table(("row", *NAMES), np.hstack([np.zeros((24, 1), np.float32), x.values]))
    with pytest.raises(DataError, match=r"they have 7 columns \(row, age, .*\), the model takes 6"):
        new(tmp_path / "run").learn({"north": (wide, y)})
    with pytest.raises(DataError, match="they have 7 columns, the model takes 6"):
        new(tmp_path / "other").learn({"north": (wide.values, y)})


def test_the_order_outlives_the_rows_that_set_it(fed: Federation, tmp_path: Path) -> None:
    """It is part of the client's context: a twin that never had the first rows keeps the others in the same order."""
    twin = fed.twin(tmp_path / "twin")
    fed.learn({"north": named(2, ORDER)})
    fed.unlearn("north", samples=[i for i in fed.learn({"north": named(1)}).added["north"].ids if i is not None])
    twin.learn({"north": named(2, ORDER)})
    assert fed.verify().exact
    assert_same(fed, twin)


def test_without_rows_other_columns_may_come(fed: Federation) -> None:
    fed.unlearn("north", everything=True)
    x, y = named(2)
    assert fed.learn({"north": (Table(tuple("uvwxyz"), x.values), y)}).added["north"].new == 24
    with pytest.raises(DataError, match="'u' is missing"):
        fed.predict("north", x)


def test_forgotten_rows_are_known_after_a_table_with_other_columns(fed: Federation) -> None:
    fed.unlearn("north", everything=True)
    x, y = named(2)
    fed.learn({"north": (Table(tuple("uvwxyz"), x.values), y)})
    fed.unlearn("north", everything=True)
    turned, labels = named(1, ORDER)
    assert fed.learn({"north": (turned, labels)}).added["north"].refused == 24
    assert fed.learn({"north": named(1)}).added["north"].refused == 24
    with pytest.raises(DataError, match="an array does not say which is which"):
        fed.learn({"north": (named(1)[0].values, labels)})


@pytest.mark.parametrize("forget", [{"classes": ["cat"]}, {"everything": True}, {}])
def test_columns_with_names_and_without_are_not_matched(tmp_path: Path, forget: dict[str, Any]) -> None:
    """Nobody knows which is which, and forgotten rows would be others with their columns in another order."""
    x, y = named(1)
    first, then = new(tmp_path / "first"), new(tmp_path / "then")
    first.learn({"north": (x, y)})
    then.learn({"north": (x.values, y)})
    for fed in (first, then):
        if forget:
            fed.unlearn("north", **forget)
    with pytest.raises(DataError, match=r"columns with names \(age, .*Give a data frame, or .*Table\(names, array\)"):
        first.learn({"north": (x.values, y)})
    with pytest.raises(DataError, match=r"have names \(pulse, .*Give an array \(table\.to_numpy\(\)\)"):
        then.learn({"north": named(1, ORDER)})
    if "everything" not in forget:
        with pytest.raises(DataError, match="does not say which is which"):
            first.predict("north", x.values)
        with pytest.raises(DataError, match="those it learned from had none"):
            then.predict("north", named(1, ORDER)[0])
    gone = {"classes": 12, "everything": 24}.get(next(iter(forget), ""), 0)
    assert first.learn({"north": named(1, ORDER)}).added["north"].refused == gone
    assert then.learn({"north": (x.values, y)}).added["north"].refused == gone


def numbered(order: list[int], seed: int = 1) -> tuple[Table, np.ndarray]:
    """A table whose columns have the numbers of their places for names, as data frames have by default."""
    x, y = named(seed)
    return Table(tuple(map(str, order)), x.values[:, order]), y


@pytest.mark.parametrize("forget", [{"classes": ["cat"]}, {"everything": True}])
@pytest.mark.parametrize(("first", "then"), [(list(range(6)), ORDER), (ORDER, list(range(6))), (ORDER, ORDER[::-1])])
def test_numbers_are_names(tmp_path: Path, forget: dict[str, Any], first: list[int], then: list[int]) -> None:
    fed = new(tmp_path / "run")
    fed.learn({"north": numbered(first)})
    assert fed.predict("north", numbered(then)[0]) == fed.predict("north", numbered(first)[0])
    assert fed.learn({"north": numbered(then)}).added["north"].held == 24
    fed.unlearn("north", **forget)
    for order in (then, first):
        assert fed.learn({"north": numbered(order)}).added["north"].refused == (12 if "classes" in forget else 24)


@pytest.mark.parametrize("forget", [{}, {"classes": ["cat"]}, {"everything": True}])
def test_an_array_is_a_table_that_is_numbered_in_turn(tmp_path: Path, forget: dict[str, Any]) -> None:
    (x, y), (turned, _) = numbered(list(range(6))), numbered(ORDER)
    gone = {"classes": 12, "everything": 24}.get(next(iter(forget), ""), 0)
    for name, first, then in (("frame", x, x.values), ("array", x.values, x)):
        fed = new(tmp_path / name)
        fed.learn({"north": (first, y)})
        if forget:
            fed.unlearn("north", **forget)
        assert fed.learn({"north": (then, y)}).added["north"].refused == gone
    with pytest.raises(DataError, match="those it learned from had none"):
        fed.learn({"north": (turned, y)})
    fed = new(tmp_path / "turned")
    fed.learn({"north": (turned, y)})
    if forget:
        fed.unlearn("north", **forget)
    with pytest.raises(DataError, match="an array does not say which is which"):
        fed.learn({"north": (x.values, y)})


def test_arrays_of_another_width_are_taken_as_they_are(fed: Federation, tmp_path: Path) -> None:
    """The names that are kept belong to a table that nobody holds any more."""
    fed.unlearn("north", everything=True)
    flexible = Federation(tmp_path / "other", split(Sums(), at="cut", example=torch.zeros(1, 6)), settings())
    flexible.learn({"north": named(1)})
    flexible.unlearn("north", everything=True)
    x, y = table(3, ("cat", "dog"), 24)
    for _ in range(2):
        added = flexible.learn({"north": (x[:, :4], y)}).added["north"]
        assert (added.new + added.held, added.refused) == (24, 0)
    assert len(flexible.predict("north", x[:, :4])) == 24


class Sums(nn.Module):
    """Takes tables of any width."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Linear(1, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.cut(x.sum(dim=1, keepdim=True))))


class Both(nn.Module):
    """Takes two tables."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Linear(FEATURES, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.head(torch.relu(self.cut(torch.cat([left, right], dim=1))))


def pair(order: list[int]) -> tuple[dict[str, Table], np.ndarray]:
    """Two tables of three columns each, in an order of their columns."""
    x, y = table(1, ("cat", "dog"), 24)
    return {
        side: Table(tuple(names[place] for place in order), values[:, order])
        for side, names, values in (("left", NAMES[:3], x[:, :3]), ("right", NAMES[3:], x[:, 3:]))
    }, y


def test_columns_of_several_tables_are_matched_by_name(tmp_path: Path) -> None:
    torch.manual_seed(0)
    example = {"left": torch.zeros(1, 3), "right": torch.zeros(1, 3)}
    fed = Federation(tmp_path / "run", split(Both(), at="cut", example=example), settings(keys="seeded"))
    fed.learn({"north": pair([0, 1, 2])})
    turned, labels = pair([2, 0, 1])
    assert fed.learn({"north": (turned, labels)}).added["north"].held == 24
    assert fed.predict("north", turned) == fed.predict("north", pair([0, 1, 2])[0])
    with pytest.raises(DataError, match="'pulse' is missing"):
        fed.predict("north", {**turned, "right": turned["left"]})
    fed.unlearn("north", everything=True)
    assert fed.learn({"north": (turned, labels)}).added["north"].refused == 24


def test_tables_with_the_same_columns_in_different_orders_are_known(tmp_path: Path) -> None:
    """Each table has its own order, also after tables with other columns were learned and forgotten."""

    def tables(left: list[int], right: list[int], names: str = "abc", seed: int = 1) -> tuple[Any, np.ndarray]:
        x, y = table(seed, ("cat", "dog"), 24)
        return {
            side: Table(tuple(names[place] for place in order), values[:, order])
            for side, order, values in (("left", left, x[:, :3]), ("right", right, x[:, 3:]))
        }, y

    torch.manual_seed(0)
    example = {"left": torch.zeros(1, 3), "right": torch.zeros(1, 3)}
    fed = Federation(tmp_path / "run", split(Both(), at="cut", example=example), settings(keys="seeded"))
    for given in (tables([0, 1, 2], [2, 1, 0]), tables([0, 1, 2], [0, 1, 2], "xyz", seed=2)):
        fed.learn({"north": given})
        fed.unlearn("north", everything=True)
    for left, right in (([1, 0, 2], [1, 0, 2]), ([0, 1, 2], [0, 1, 2]), ([2, 1, 0], [0, 1, 2])):
        assert fed.learn({"north": tables(left, right)}).added["north"].refused == 24
