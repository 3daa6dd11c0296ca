"""Data in all its forms, and what is refused."""

import numpy as np
import pytest
import torch

from splitwiper import Label
from splitwiper.data.rows import as_inputs, as_rows
from splitwiper.errors import DataError

X = np.zeros((4, 3), np.float32)


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
    assert as_rows((X, ["名\u200d😀", "", "a b", "'; --"]), task="t").labels[0].name == "名\u200d😀"
    assert as_rows((X, torch.tensor([3, 3, 3, 3])), task="t").labels[0] == Label("t", 3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, [1, 2, 3]), "different numbers of rows"),
        ((X[:0], []), "no rows"),
        ((X, [1.0, 2.0, 3.0, 4.0]), "label 1.0 is neither a name nor an integer"),
        ((X, [True, False, True, False]), "label True"),
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
        ([(X[0], 1), (X[0][:2], 1)], "do not stack"),
        ([X[0], X[1]], r"\(input, label\) pairs"),
    ],
)
def test_what_cannot_be_learned_from(data: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_rows(data, task="")
