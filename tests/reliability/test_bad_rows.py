"""Rows that cannot be learned from: a clear error, and a run exactly as it was."""

from __future__ import annotations

import shutil
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from reliability.stage import bits, config, halves, reopen, rows, scratch, strays
from splitwiper import Federation, split
from splitwiper.errors import DataError, TrainingError
from splitwiper.federation import status

GOOD = {"north": rows("north", "aabb"), "south": rows("south", "bbaa")}
X, Y = rows("north", "ab", part=1)


@pytest.fixture(scope="module")
def finished() -> Iterator[Path]:
    """A finished run that all tests share; at the end it predicts as before and is exact."""
    folder = scratch()
    fed = Federation(folder / "run", halves(), config(labels=("a", "b")))
    fed.learn(GOOD)
    answers = fed.predict("north", GOOD["north"][0])
    yield folder / "run"
    fed = reopen(folder / "run")
    assert fed.settle() == ()
    assert fed.predict("north", GOOD["north"][0]) == answers
    assert fed.verify().exact
    shutil.rmtree(folder)


@pytest.fixture
def run(finished: Path) -> Iterator[Path]:
    """Whatever the test does to the run must leave it as it was."""
    before = bits(finished)
    yield finished
    assert bits(finished) == before
    assert status(finished).todo == ()
    assert strays(finished) == []
    assert reopen(finished).clients == ("north", "south")


class Ragged(Dataset[Any]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(3 + index), "a"


class Empty(Ragged):
    def __len__(self) -> int:
        return 0


class Single(Ragged):
    def __getitem__(self, index: int) -> Any:
        return torch.zeros(4)


def spoilt(value: float) -> np.ndarray[Any, Any]:
    x = X.copy()
    x[1, 2] = value
    return x


BAD: dict[str, tuple[Any, str]] = {
    "NaN": ((spoilt(np.nan), Y), r"NaN or infinite.*row 1.*drop those rows or fill"),
    "infinite": ((spoilt(-np.inf), Y), "NaN or infinite"),
    "beyond float32": ((X.astype(np.float64) * 1e300, Y), "NaN or infinite"),
    "too wide": ((np.zeros((2, 5), np.float32), Y), r"F32\[5\]"),
    "too deep": ((np.zeros((2, 4, 1), np.float32), Y), r"F32\[4, 1\]"),
    "no row dimension": ((np.float32(3), ["a"]), "no row dimension"),
    "integers where floats were": ((np.zeros((2, 4), np.int64), Y), "I64"),
    "half floats": ((X.astype(np.float16), Y), "F16"),
    "complex": ((X.astype(np.complex64), Y), "complex64"),
    "text": ((np.array([["a"] * 4] * 2), Y), "dtype <U1"),
    "objects": ((np.array([[None] * 4] * 2), Y), "dtype object"),
    "two inputs where one was": (((X, X), Y), "0 F32"),
    "named inputs": (({"pixels": X}, Y), "pixels"),
    "no inputs": (({}, Y), "no inputs"),
    "fewer labels": ((X, ["a"]), r"different numbers of rows.*2.*1"),
    "more labels": ((X, ["a", "b", "a"]), "different numbers of rows"),
    "several labels a row": ((X, np.zeros((2, 3), np.int64)), r"shape \[2, 3\]"),
    "a label outside the set": ((X, ["a", "bb"]), r"'bb' is outside the known set \['a', 'b'\].*'b'"),
    "an integer label outside the set": ((X, [0, 1]), "0 is outside"),
    "float labels": ((X, [0.5, 1.5]), "regression is not supported"),
    "boolean labels": ((X, [True, False]), "True is a truth value"),
    "no label": ((X, ["a", None]), "label is None"),
    "bytes labels": ((X, [b"a", b"b"]), r"b'a' \(bytes\) is neither"),
    "no rows": ((np.zeros((0, 4), np.float32), []), "no rows"),
    "an empty dataset": (Empty(), "no rows"),
    "a ragged dataset": (Ragged(), "do not stack"),
    "a dataset without labels": (Single(), "pairs"),
    "a stream": (iter([1]), "map-style"),
    "nothing": (None, "NoneType"),
}


@pytest.mark.parametrize("client", ["north", "west"])
@pytest.mark.parametrize("what", BAD)
def test_bad_rows_are_refused_and_nothing_is_kept(run: Path, what: str, client: str) -> None:
    """For a client that is there, and for one that would have joined; what the same call brings else is not kept."""
    data, message = BAD[what]
    if client == "west" and message in ("I64", "F16", "0 F32", "pixels", r"F32\[4, 1\]"):
        message = "(?s)cannot take rows|sends"  # there are no earlier rows to compare with, but the half refuses
    with pytest.raises(DataError, match=message):
        reopen(run).learn({"south": rows("south", "ab", part=1), client: data})


NAMES = {
    "../x": "use 1 to 64 letters",
    "..": "use 1 to 64 letters",
    "a/b": "use 1 to 64 letters",
    "/abs": "use 1 to 64 letters",
    "": "use 1 to 64 letters",
    "a\0b": "use 1 to 64 letters",
    "é": "use 1 to 64 letters",
    ".tmp-x": "use 1 to 64 letters",
    "-flag": "use 1 to 64 letters",
    "x" * 65: "use 1 to 64 letters",
    "North": "differs from 'north' in case alone",
}


@pytest.mark.parametrize("name", NAMES)
def test_bad_names_are_refused(run: Path, name: str) -> None:
    with pytest.raises(DataError, match=NAMES[name]) as error:
        reopen(run).learn({name: (X, Y)})
    assert repr(name) in str(error.value)
    assert not (run.parent / "x").exists()


def test_names_given_twice_are_refused(run: Path) -> None:
    with pytest.raises(DataError, match="'west' is named twice"):
        reopen(run).learn([("west", (X, Y)), ("west", (X, Y))])
    with pytest.raises(DataError, match="'WEST' differs from 'west' in case alone"):
        reopen(run).learn([("west", (X, Y)), ("WEST", (X, Y))])
    with pytest.raises(DataError, match="client name 7"):
        reopen(run).learn({7: (X, Y)})  # type: ignore[dict-item]


def test_another_task_is_refused(run: Path) -> None:
    with pytest.raises(DataError, match="'north' joined for task '', not 'birds'"):
        reopen(run).learn({"north": (X, Y)}, tasks={"north": "birds"})


class Exp(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.exp()


def test_a_half_that_overflows_says_what_to_do_and_holds_up_nobody_else(tmp_path: Path) -> None:
    """Whether rows blow up only shows in training: the rows are kept, can be forgotten, and others go on."""
    torch.manual_seed(0)
    net = nn.Sequential(OrderedDict(stem=nn.Sequential(nn.Linear(4, 3), Exp()), head=nn.Linear(3, 2)))
    both = split(net, at="stem", example=torch.zeros(1, 4))
    fed = Federation(tmp_path / "run", both, config())
    first = fed.learn(GOOD).added
    answers = fed.predict("south", GOOD["south"][0])
    twin = fed.twin(tmp_path / "twin")
    with pytest.raises((DataError, TrainingError), match=r"(?i)'north'.*lower lr.*forget the rows that were added"):
        fed.learn({"north": (np.full((2, 4), 1e5, np.float32) * [[1], [-1]], ["a", "b"])})
    assert fed.predict("south", GOOD["south"][0]) == answers
    assert any("north" in what for what in status(tmp_path / "run").todo)
    fed.unlearn("south", samples=first["south"].ids[:1])  # what south asks for is done all the same
    with pytest.raises((DataError, TrainingError), match="'north'"):
        fed.settle()
    assert [receipt.client for receipt in fed.receipts()] == ["south"]
    fed.unlearn("north", samples=[number for number in fed.rows("north") if number not in first["north"].ids])
    assert status(tmp_path / "run").todo == ()
    assert fed.verify().exact
    assert strays(tmp_path / "run") == []
    x, y = GOOD["south"]
    twin.learn({"north": GOOD["north"], "south": (x[1:], y[1:])})
    one, other = bits(tmp_path / "run"), bits(tmp_path / "twin")
    assert (one["model"], one["shard north"]) == (other["model"], other["shard north"])


class Rounds(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.round().long()


class First(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


class Column(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, None].float()


def test_a_cut_that_sends_integers_alone_is_refused_before_anything_is_kept(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 3), Rounds(), nn.Flatten(), First(), Column(), nn.Linear(1, 2))
    fed = Federation(tmp_path / "run", split(net, at="1", example=torch.zeros(1, 4)), config())
    with pytest.raises(DataError, match="nothing but integers crosses the cut"):
        fed.learn(GOOD)
    assert fed.clients == ()


def test_a_cut_that_sends_one_number_a_row(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 3), First(), Column(), nn.Linear(1, 2))
    fed = Federation(tmp_path / "run", split(net, at="1", example=torch.zeros(1, 4)), config())
    fed.learn(GOOD)
    assert fed.verify().exact


def test_predictions_take_rows_of_the_type_that_was_learned(tmp_path: Path) -> None:
    net = nn.Sequential(Column8(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    fed = Federation(tmp_path / "run", split(net, at="2", example=torch.zeros(1, 4, dtype=torch.uint8)), config())
    pixels = np.random.default_rng(0).integers(0, 256, (20, 4)).astype(np.uint8)
    fed.learn({"north": (pixels, ["a", "b"] * 10)})
    answers = fed.predict_proba("north", pixels)
    for same in (np.float32, np.int64):
        assert np.array_equal(fed.predict_proba("north", pixels.astype(same)), answers)
    for other in (pixels / 255, pixels.astype(np.int64) + 300, -pixels.astype(np.int64) - 1):
        with pytest.raises(DataError, match="values that change as uint8"):
            fed.predict("north", other)


class Column8(nn.Module):
    """Pixels as numbers between 0 and 1."""

    def forward(self, x: Tensor) -> Tensor:
        return x.float() / 255 if x.dtype == torch.uint8 else x.float()
