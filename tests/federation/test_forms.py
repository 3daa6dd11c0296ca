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
from splitwiper.config.hiding import Masking
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


class Eight(nn.Module):
    """Takes eight inputs, by position in another order than by name."""

    def __init__(self) -> None:
        super().__init__()
        self.cut, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, h: Tensor, g: Tensor, f: Tensor, e: Tensor, d: Tensor, c: Tensor, b: Tensor, a: Tensor) -> Tensor:
        return self.head(torch.relu(self.cut(torch.cat([h, g, f, e, d, c, b, a], dim=1))))


def test_more_inputs_than_can_be_tried_in_every_order(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    named = {name: draw.normal(size=(ROWS, 1)).astype(np.float32) for name in "hgfedcba"}
    halves = split(Eight(), at="cut", example=tuple(torch.zeros(1, 1) for _ in named))
    fed = Federation(tmp_path / "run", halves, settings())
    fed.learn({"north": (named, LABELS)})
    fed.unlearn("north", everything=True)
    with pytest.raises(DataError, match=r"8 inputs have too many orders. Give them by keyword"):
        fed.learn({"north": (tuple(named.values()), LABELS)})
    assert fed.learn({"north": (named, LABELS)}).added["north"].refused == ROWS
    other = {name: values + 1 for name, values in named.items()}
    assert fed.learn({"north": (other, LABELS)}).added["north"].new == ROWS


def test_rounded_rows_are_known_when_they_come_back_as_they_were_before(tmp_path: Path) -> None:
    torch.manual_seed(0)
    wide = split(Doubles(), at="cut", example=torch.zeros(1, FEATURES, dtype=torch.float64))
    fed = Federation(tmp_path / "run", wide, settings())
    exact = VALUES * 0.1
    exact[0, 0] = -1e-60  # which is rounded to zero
    fed.learn({"north": (exact.astype(np.float32), LABELS)})
    fed.unlearn("north", everything=True)
    assert fed.learn({"north": (exact, LABELS)}).added["north"].refused == ROWS
    assert fed.learn({"north": (exact + 0.01, LABELS)}).added["north"].new == ROWS


def test_large_integers_are_known_when_they_come_back_exactly(tmp_path: Path) -> None:
    """A float32 has no room for the seconds since 1970, for example."""
    seconds = 1_700_000_000 + VALUES
    fed = Federation(tmp_path / "run", one(), settings(standardise=True))
    fed.learn({"north": (seconds.astype(np.float32), LABELS)})
    fed.unlearn("north", everything=True)
    assert fed.learn({"north": (seconds, LABELS)}).added["north"].refused == ROWS


class Doubles(nn.Module):
    """Computes in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.cut, self.head = nn.Linear(FEATURES, 8).double(), nn.Linear(8, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.cut(x.double())))


NUMBERS = [0, 1, 2] * 4
TEXTS = ["0", "1", "2"] * 4


@pytest.mark.parametrize("forget", ["everything", "classes"])
@pytest.mark.parametrize(("first", "then"), [(NUMBERS, TEXTS), (TEXTS, NUMBERS)])
def test_forgotten_rows_whose_labels_come_back_as_another_type(
    tmp_path: Path, forget: str, first: list[Any], then: list[Any]
) -> None:
    fed = Federation(tmp_path / "run", one(), settings())
    fed.learn({"north": (SINGLE["float32"], first)})
    fed.unlearn("north", **({"everything": True} if forget == "everything" else {"classes": first[:1]}))
    if forget == "classes":
        with pytest.raises(DataError, match=r"'north'.* would be two labels"):
            fed.learn({"north": (SINGLE["float32"], then)})
        only = SINGLE["float32"][::3], then[::3]  # the class that nobody has any more
        assert fed.learn({"north": only}).added["north"].refused == ROWS // 3
    else:
        assert fed.learn({"north": (SINGLE["float32"], then)}).added["north"].refused == ROWS
        assert fed.learn({"north": (SINGLE["by keyword"], then)}).added["north"].refused == ROWS


def test_labels_are_one_type_in_a_federation(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", one(), settings())
    rows, others = SINGLE["float32"], SINGLE["float32"] + 1
    with pytest.raises(DataError, match=r"'north' has the label \d, and client 'south' has '\d'"):
        fed.learn({"north": (rows, NUMBERS), "south": (others, TEXTS)})
    assert fed.clients == ()
    fed.learn({"north": (rows, NUMBERS)})
    with pytest.raises(
        DataError, match=r"'south' has the label '\d', and client 'north' has \d: the integer . and the"
    ):
        fed.learn({"south": (others, TEXTS)})
    with pytest.raises(DataError, match=r"the label '\d' was learned as \d.*Give \d\."):
        fed.evaluate({"north": (rows, TEXTS)})
    assert fed.clients == ("north",) and fed.status().todo == ()
    fed.learn({"south": (others, TEXTS)}, tasks={"south": "other"})
    assert fed.evaluate({"north": (rows, ["new"] * ROWS)}).accuracy == 0


def test_labels_are_one_type_in_the_codebook(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    config = settings(masking=Masking(mode="duplicate"))
    fed = Federation(tmp_path / "run", one(), config)
    fed.learn({"north": (SINGLE["float32"], NUMBERS)})
    with pytest.raises(DataError, match="is not in the codebook"):
        fed.learn({"south": (SINGLE["float32"] + 1, TEXTS)})
    with pytest.raises(DataError, match="the integer 0 and the text '0' would be two labels"):
        fed.rekey(["0"])


def test_one_text_is_one_label_however_it_is_written(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", one(), settings())
    composed, apart = ["caf\u00e9", "b", "c"] * 4, ["cafe\u0301", "b", "c"] * 4
    fed.learn({"north": (SINGLE["float32"], composed)})
    assert fed.learn({"north": (SINGLE["float32"], apart)}).added["north"].held == ROWS
    fed.unlearn("north", classes=apart[:1])
    assert fed.learn({"north": (SINGLE["float32"], apart)}).added["north"].refused == ROWS // 3


def test_a_function_that_shuffles_may_not_change_its_rows(tmp_path: Path) -> None:
    fed, draw = Federation(tmp_path / "run", one(), settings()), np.random.default_rng(0)

    def shuffled(jitter: float) -> Any:
        order = draw.permutation(ROWS)
        return (SINGLE["float32"] + np.float32(jitter * draw.random()))[order], [LABELS[n] for n in order]

    with pytest.raises(DataError, match="'north' are others when they are asked for again"):
        fed.learn({"north": lambda: shuffled(0.1)})
    assert fed.clients == ()
    assert fed.learn({"north": lambda: shuffled(0.0)}).added["north"].new == ROWS
