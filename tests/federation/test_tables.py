"""Tables whose columns have names: no column is taken for another, whatever order a file has them in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from federation.runs import FEATURES, assert_same, halves, settings, table
from splitwiper import Federation
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
    assert fed.predict("north", turned) == fed.predict("north", x) == fed.predict("north", x.values)
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
