"""Forgotten rows are refused in whatever form they come back: dtype, shape, names, order, containers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from federation.runs import FEATURES, settings
from splitwiper import Federation, Halves, split
from splitwiper.errors import DataError

ROWS = 12
LABELS = ["a", "b", "c"] * 4
VALUES = np.arange(ROWS * FEATURES).reshape(ROWS, FEATURES) % 251 + 1  # fit into any dtype
TABLE = np.arange(ROWS) % 10
FORGET: dict[str, Callable[[Federation], object]] = {
    "samples": lambda fed: fed.unlearn("north", samples=list(fed.rows("north"))),
    "one by one": lambda fed: [fed.submit("north", samples=[row]) for row in fed.rows("north")] and fed.settle(),
    "classes": lambda fed: fed.unlearn("north", classes=["a", "b", "c"]),
    "everything": lambda fed: fed.unlearn("north", everything=True),
}


class One(nn.Module):
    """Takes numbers of any kind."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Linear(FEATURES, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.cut(x.float().reshape(len(x), -1) / 256)))


class Two(nn.Module):
    """Takes two inputs, by position in another order than by name."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.cut = nn.Linear(FEATURES + 4, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, z: Tensor, a: Tensor) -> Tensor:
        return self.head(torch.relu(self.cut(torch.cat([z.float() / 256, self.embed(a.long())], dim=1))))


def one() -> Halves:
    torch.manual_seed(0)
    return split(One(), at="cut", example=torch.zeros(1, FEATURES))


def two() -> Halves:
    torch.manual_seed(0)
    return split(Two(), at="cut", example=(torch.zeros(1, FEATURES), torch.zeros(1, dtype=torch.int64)))


SINGLE: dict[str, Any] = {
    **{name: VALUES.astype(name) for name in ("float32", "float64", "float16", "int64", "int16", "uint8", ">f4")},
    "tensor": torch.from_numpy(VALUES.astype(np.float32)),
    "double tensor": torch.from_numpy(VALUES.astype(np.float64)),
    "byte tensor": torch.from_numpy(VALUES.astype(np.uint8)),
    "not contiguous": np.asfortranarray(VALUES.astype(np.float32)),
    "lists": VALUES.tolist(),
    "another shape": VALUES.astype(np.float32).reshape(ROWS, 2, FEATURES // 2),
    "a tuple of one": (VALUES.astype(np.float32),),
    "by keyword": {"x": VALUES.astype(np.float32)},
    "by keyword, integers": {"x": VALUES.astype(np.int32)},
}
DOUBLE: dict[str, Any] = {
    "by position": (VALUES.astype(np.float32), TABLE),
    "by keyword": {"z": VALUES.astype(np.float32), "a": TABLE},
    "by keyword, other order": {"a": TABLE, "z": VALUES.astype(np.float32)},
    "other dtypes": {"z": VALUES.astype(np.uint8), "a": TABLE.astype(np.float32)},
    "tensors": (torch.from_numpy(VALUES.astype(np.float64)), torch.from_numpy(TABLE).int()),
}


@pytest.mark.parametrize("level", FORGET)
@pytest.mark.parametrize(("cut", "forms"), [(one, SINGLE), (two, DOUBLE)], ids=["one input", "two inputs"])
def test_forgotten_rows_are_refused_in_every_form(
    tmp_path: Path, level: str, cut: Callable[[], Halves], forms: dict[str, Any]
) -> None:
    """Whatever form they were learned in, and whatever form they had in between."""
    first = list(forms)[len(level) % len(forms)]
    fed = Federation(tmp_path / "run", cut(), settings())
    fed.learn({"north": (forms[first], LABELS)})
    FORGET[level](fed)
    for name, form in forms.items():
        added = fed.learn({"north": (form, LABELS)}).added["north"]
        assert (added.new, added.refused) == (0, ROWS), (first, name)
    assert fed.rows("north") == {} and fed.verify().exact


@pytest.mark.parametrize("name", SINGLE)
def test_some_forgotten_rows_do_not_come_back_beside_others(tmp_path: Path, name: str) -> None:
    """While other rows are there, a form that is not theirs is refused altogether."""
    fed = Federation(tmp_path / "run", one(), settings())
    fed.learn({"north": (SINGLE["float32"], LABELS)})
    fed.unlearn("north", classes=["a"])
    try:
        assert fed.learn({"north": (SINGLE[name], LABELS)}).added["north"].refused == ROWS // 3
    except DataError as problem:
        assert "earlier ones were" in str(problem)
    assert "a" not in fed.rows("north").values() and len(fed.rows("north")) == ROWS - ROWS // 3


def test_rows_that_were_forgotten_in_several_forms(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", one(), settings())
    fed.learn({"north": (SINGLE["float32"][:4], LABELS[:4])})
    fed.unlearn("north", everything=True)
    fed.learn({"north": ({"x": VALUES[4:8].astype(np.int64)}, LABELS[4:8])})
    fed.unlearn("north", everything=True)
    added = fed.learn({"north": TensorDatasetOfPairs(SINGLE["tensor"], LABELS)}).added["north"]
    assert (added.new, added.refused) == (4, 8)
    fed.unlearn("north", samples=[row for row in added.ids if row is not None][:1])
    with pytest.raises(DataError, match="earlier ones were"):
        fed.learn({"north": (SINGLE["by keyword"], LABELS)})
    assert fed.learn({"north": (SINGLE["float64"], LABELS)}).added["north"].refused == 9


class TensorDatasetOfPairs(TensorDataset):
    """A dataset of (input, label) pairs, where labels are names."""

    def __init__(self, x: Tensor, labels: list[str]) -> None:
        super().__init__(x)
        self.labels = labels

    def __getitem__(self, index: int) -> tuple[Tensor, str]:
        return self.tensors[0][index], self.labels[index]


def test_another_label_makes_another_row(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", one(), settings())
    fed.learn({"north": (SINGLE["float32"], LABELS)})
    fed.unlearn("north", everything=True)
    assert fed.learn({"north": (SINGLE["by keyword"], LABELS[::-1])}).added["north"].refused == 4  # the b's


def test_rows_that_were_never_forgotten_are_not_refused_for_having_equal_inputs_the_other_way(tmp_path: Path) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cut = nn.Linear(2 * FEATURES, 8)
            self.head = nn.Linear(8, 3)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.head(torch.relu(self.cut(torch.cat([a, b], dim=1))))

    torch.manual_seed(0)
    halves = split(Both(), at="cut", example=(torch.zeros(1, FEATURES), torch.zeros(1, FEATURES)))
    x = (VALUES / 256).astype(np.float32)
    fed = Federation(tmp_path / "run", halves, settings())
    fed.learn({"north": ((x, 2 * x), LABELS)})
    fed.unlearn("north", everything=True)
    added = fed.learn({"north": ((2 * x, x), LABELS)}).added["north"]
    assert (added.new, added.refused) == (ROWS, 0)
    assert fed.learn({"north": ((x, 2 * x), LABELS)}).added["north"].refused == ROWS


def test_every_row_is_tried_where_values_are_places_in_a_table(tmp_path: Path) -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.line = nn.Parameter(torch.randn(5, 8)), nn.Linear(3, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.table[x[:, 0].long()] + self.line(x[:, 1:])

    torch.manual_seed(0)
    halves = split(nn.Sequential(Table(), nn.ReLU(), nn.Linear(8, 3)), at="0", example=torch.zeros(1, 4))
    draw = np.random.default_rng(0)
    x = draw.normal(size=(1000, 4)).astype(np.float32)
    x[:, 0] = draw.integers(0, 5, 1000)
    labels = ["a" if value > 0 else "b" for value in x[:, 1]]
    fed = Federation(tmp_path / "run", halves, settings())
    fed.learn({"north": (x, labels)})
    odd = x + np.float32([0, 1, 0, 0])
    odd[3, 0] = 99  # none of the rows that a sample has
    with pytest.raises(DataError, match="client half cannot take"):
        fed.learn({"north": (odd, labels)})
    assert len(fed.rows("north")) == 1000 and fed.verify().exact
