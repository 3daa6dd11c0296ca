"""Data in all its forms, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from splitwiper import Label
from splitwiper.data.rows import as_inputs, as_rows
from splitwiper.data.tables import Table
from splitwiper.errors import DataError

X = np.zeros((4, 3), np.float32)


class Frame:
    """A data frame as libraries have them: named columns of different types."""

    def __init__(self, **columns: Any) -> None:
        self.columns = list(columns)
        self._arrays = [np.asarray(values) for values in columns.values()]
        self.dtypes = [array.dtype for array in self._arrays]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.stack(self._arrays, axis=1)


def test_inputs_by_position_by_keyword_and_alone() -> None:
    assert as_inputs(X)[1] == "one"
    named, call = as_inputs((X, torch.ones(4)))
    assert (sorted(named), call) == (["0", "1"], "args")
    named, call = as_inputs({"ids": np.ones((4, 2), np.int64)})
    assert call == "kwargs" and named["ids"].dtype == np.int64


def test_labels_are_names_or_integers() -> None:
    for labels in (
        ["a", "b", 3, "d"],
        np.array(["a", "b"])[[0, 1, 0, 1]],
        torch.arange(4),
        np.arange(4, dtype=np.uint8),
    ):
        assert len(as_rows((X, labels), task="t").labels) == 4
    assert as_rows((X, ["名\u200d😀", " ", "a b", "'; --"]), task="t").labels[0].name == "名\u200d😀"
    assert as_rows((X, torch.tensor([3, 3, 3, 3])), task="t").labels[0] == Label("t", 3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, [1, 2, 3]), "different numbers of rows"),
        ((X[:0], []), "no rows"),
        ((X, [1.0, 2.0, 3.0, 4.0]), "if these number classes, give them as integers.*regression.*not supported"),
        ((X, np.array([1.0, 2.5, 3.0, 4.0])), "such as 2.5: SplitWiper classifies; regression is not supported"),
        ((X, torch.tensor([0.1, 0.2, 0.3, 0.4])), "regression is not supported"),
        ((X, ["a", "b", float("nan"), "a"]), r"missing \(NaN\) in 1 row;"),
        ((X, ["a", None, "b", "a"]), "a label is None: drop the rows"),
        ((X, [True, False, True, False]), "label True is a truth value; give names, or 0 and 1"),
        ((X, np.array([True, False, True, False])), "label True is a truth value"),
        ((X, [b"a"] * 4), r"label b'a' \(bytes\) is neither a name nor an integer"),
        ((X, "abcd"), "a single str; give one label per row"),
        ((X, 3), "a single int"),
        ((X, np.eye(4)), r"look one-hot: give labels.argmax\(axis=1\)"),
        ((X, [[0, 1], [1, 0], [0, 1], [1, 0]]), "look one-hot"),
        ((X, np.ones((4, 2), int)), "multi-label classification.*not supported"),
        ((X, [[1], [1, 2], [3], [4]]), "different numbers of labels"),
        ((X, np.arange(8.0).reshape(4, 2)), "several targets per row are not supported"),
        ((X, ["a", "", "b", "a"]), "a label is an empty text: drop the rows"),
        ((X, {"a", "b", "c", "d"}), "labels are a set, which does not follow the order of rows"),
        ((X, dict.fromkeys("abcd", 1)), "labels are a dict"),
        ((X, [0, "0", 1, "1"]), r"the integer . and the text '.' would be two labels.*all of them as integers"),
        ((np.ma.masked_array(X, mask=X == 0), [1] * 4), r"masked values, or fill them in \(values.filled"),
        (([np.ma.masked_array(X[0], mask=True)] * 4, [1] * 4), "inputs are masked"),
        ([(np.ma.masked_array(X[0], mask=True), 1)], "the items of the dataset are masked"),
        ((X, np.ma.masked_array([1, 2, 1, 2], mask=[0, 0, 1, 0])), "a label is None"),
        ((torch.zeros(4, 3).bfloat16(), [1] * 4), r"a bfloat16 tensor: give them as \.float\(\)"),
        ((torch.zeros(4, 3).to_sparse(), [1] * 4), r"a sparse tensor: give them as \.to_dense\(\)"),
        ((torch.zeros(4, 3, device="meta"), [1] * 4), "meta device"),
        (([torch.zeros(3).bfloat16()] * 4, [1] * 4), r"\.float\(\)"),
        ([(torch.zeros(3).bfloat16(), 1)], r"\.float\(\)"),
        ((X, torch.zeros(4, device="meta")), "labels are on the meta device"),
        (([[1.0], [1.0, 2.0]], [1, 2]), "make no array"),
        ((X, ["line\nbreak"] * 4), "control characters"),
        ((X, ["\ud800"] * 4), "control characters"),
        ((X, ["x" * 1001] * 4), "longer than 1,000 characters"),
        ((X, [2**70] * 4), "beyond 64 bits"),
        ((X, np.zeros((4, 2))), "one label per row"),
        ((np.array([[1.0, np.nan]] * 4), [1] * 4), r"NaN or infinite values in 4 rows \(first: row 0\)"),
        ((X.astype("complex64"), [1] * 4), "dtype complex64"),
        ((np.array([["a"]] * 4), [1] * 4), "dtype"),
        ((np.float32(3), [1]), "no row dimension"),
        ((X, [1] * 4, "more"), "cannot read data|pairs"),
        (3, "cannot read data of type int"),
        ((item for item in [(X[0], 1)]), "cannot read data of type generator: give .* a map-style torch Dataset"),
        (DataLoader(TensorDataset(torch.zeros(4, 3), torch.arange(4))), "give the dataset behind it, loader.dataset"),
        ("rows.csv", r"'rows.csv' is a path: read the file first.*read_data\(path\)"),
        (Path("rows.csv"), "is a path"),
        (X, r"inputs \(ndarray of shape \[4, 3\]\) and no labels"),
        (torch.zeros(4, 3), "no labels"),
        ([X, np.arange(4)], r"item 0 is a ndarray.*give them as a tuple"),
        ({"x": X}, r"a dict \(of 'x'\)"),
        (Table(("a", "b", "kind"), X), r"which column holds the labels: give \(table\[features\], table\[label\]\)"),
        ([{"image": X[0], "label": 1}], r"item 0 is a dict with 'image', 'label'. Give inputs and labels apart"),
        ([(X[0], 1, "id")], "item 0 is a tuple of 3"),
        ((Frame(age=[1.0], city=["Rome"], born=[np.datetime64("2020-01-01")]), [1]), "the columns 'city', 'born' are"),
        ([(X[0], 1), (X[0][:2], 1)], "do not stack"),
        ([X[0], X[1]], r"\(input, label\) pairs"),
    ],
)
def test_what_cannot_be_learned_from(data: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_rows(data, task="")


@pytest.mark.filterwarnings("ignore")
def test_tensors_of_which_numpy_knows_nothing() -> None:
    for tensor, remedy in (
        (torch.quantize_per_tensor(torch.zeros(4, 3), 0.1, 0, torch.qint8), r"a quantised tensor: .*\.dequantize\(\)"),
        (torch.nested.nested_tensor([torch.zeros(3)] * 4), "a nested tensor: give rows of one shape"),
    ):
        with pytest.raises(DataError, match=remedy):
            as_rows((tensor, [1] * 4), task="")


def test_a_column_of_labels_is_taken_as_labels() -> None:
    for labels in (np.array([[0], [1], [0], [1]]), torch.tensor([[0], [1], [0], [1]]), [[0], [1], [0], [1]]):
        assert [label.name for label in as_rows((X, labels), task="").labels] == [0, 1, 0, 1]
    assert [label.name for label in as_rows((X, Frame(kind=[0, 1, 0, 1])), task="").labels] == [0, 1, 0, 1]


class Indexed:
    """A table, or a column of one, whose rows are numbered."""

    def __init__(self, values: Any, index: Any, columns: Any = None) -> None:
        self._values, self.index = np.asarray(values), index
        if columns is not None:
            self.columns = columns

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Any:
        return iter(self._values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._values


def test_rows_are_not_matched_against_their_index() -> None:
    table, labels = Indexed(X, [3, 1, 2, 0], "abc"), Indexed([1, 2, 3, 4], range(4))
    for inputs in (table, (table,), {"x": table}):
        with pytest.raises(DataError, match=r"index is not that of the labels.*labels\.to_numpy\(\).*labels\.loc"):
            as_rows((inputs, labels), task="")
    for inputs, given in (
        (table, Indexed([1, 2, 3, 4], [3, 1, 2, 0])),
        (table, np.arange(4)),
        (table, [1, 2, 3, 4]),
        (X, labels),
    ):
        assert len(as_rows((inputs, given), task="")) == 4


def test_one_text_is_one_label_however_it_is_written() -> None:
    first, second = (as_rows((X, ["caf\u00e9", text, "b", "b"]), task="") for text in ("caf\u00e9", "cafe\u0301"))
    assert first.labels == second.labels and len(set(second.labels)) == 2


class Buffer(Dataset[Any]):
    """A dataset that fills the same memory for every item."""

    def __init__(self, kind: str) -> None:
        self._kind, self._memory, self._label = kind, np.zeros(4, np.float32), np.zeros((), np.int64)

    def __len__(self) -> int:
        return 60

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        self._memory[:] = number
        self._label[...] = number % 3
        tensor = torch.from_numpy(self._memory)
        forms = {"array": self._memory, "tensor": tensor, "tuple": (self._memory,), "dict": {"x": tensor}}
        return forms[self._kind], self._label


@pytest.mark.parametrize("kind", ["array", "tensor", "tuple", "dict"])
def test_a_dataset_may_fill_one_buffer_for_all_items(kind: str) -> None:
    rows = as_rows(Buffer(kind), task="")
    (values,) = rows.inputs.values()
    assert values[:, 0].tolist() == list(range(60)) and rows.labels[4] == Label("", 1)


class Augmented(Dataset[Any]):
    """Rows that are mirrored at random as they are read, as torchvision's transforms do."""

    def __init__(self, chance: float, *, labels: bool = False) -> None:
        self._rows, self._draw = np.arange(400.0).reshape(100, 4), np.random.default_rng(0)
        self._chance, self._labels = chance, labels

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        mirrored = self._draw.random() < self._chance
        row = torch.tensor(self._rows[number])
        return (row.flip(0) if mirrored and not self._labels else row), int(mirrored and self._labels)


@pytest.mark.parametrize("labels", [False, True])
def test_rows_that_change_when_they_are_read_again_are_refused(labels: bool) -> None:
    with pytest.raises(DataError, match=r"another one when it is read again.*augmentation into the model"):
        as_rows(Augmented(0.5, labels=labels), task="")
    assert len(as_rows(Augmented(0.0), task="")) == 100


def test_items_with_nan_and_several_inputs_are_steady() -> None:
    items = [({"a": torch.tensor([float(i)]), "b": np.array([i])}, "x") for i in range(3)]
    assert set(as_rows(items, task="").inputs) == {"a", "b"}
    with pytest.raises(DataError, match="NaN"):  # and not that they change
        as_rows([(np.array([np.nan]), 1)], task="")
