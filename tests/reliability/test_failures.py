"""Forgetting that fails for a reason other than the rows: shard and rows are as they were, and settling finishes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from reliability.stage import bits, config, halves, place_keys, reopen, rows, strays
from splitwiper import Federation
from splitwiper.client import embed
from splitwiper.errors import DataError, ResourceError, TrainingError
from splitwiper.federation import status
from splitwiper.store import files
from splitwiper.training.stepping import Step

DATA = {"north": rows("north", "abcabc"), "south": rows("south", "abcabc")}
MOMENTS = ("north: pre-training", "north: embedding", "server: training")


def make(path: Path) -> Federation:
    place_keys(path)
    fed = Federation(path, halves(), config(slices=2, codec="int8"))
    fed.learn(DATA)
    return fed


@pytest.fixture
def finished(tmp_path: Path) -> dict[str, Any]:
    make(tmp_path / "quiet").unlearn("north", classes=["a"])
    return bits(tmp_path / "quiet")


def check(run: Path, expected: dict[str, Any]) -> None:
    """Nothing was lost: the shard is there, the rows are, and settling comes to what it would have come to."""
    fed = reopen(run)
    assert {client for client, _, _ in fed.uploads()} == {"north", "south"}
    assert sorted(map(str, fed.rows("north").values())) == ["b", "b", "c", "c"]
    assert status(run).todo
    assert len(fed.settle()) == 1
    assert bits(run) == expected and strays(run) == [] and fed.verify().exact


@pytest.mark.share(3)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    "problem",
    [KeyboardInterrupt(), MemoryError(), ValueError("mine"), DataError("mine"), TrainingError("mine")],
    ids=lambda problem: type(problem).__name__,
)
def test_a_callback_that_raises(tmp_path: Path, finished: dict[str, Any], moment: str, problem: BaseException) -> None:
    make(tmp_path / "run")

    def callback(what: str, *_: object, **__: object) -> None:
        if what == moment:
            raise problem

    with pytest.raises(type(problem)):
        Federation(tmp_path / "run", halves(), progress=callback).unlearn("north", classes=["a"])
    check(tmp_path / "run", finished)


def once(problem: BaseException, real: Callable[..., Any]) -> Callable[..., Any]:
    """Raise a problem at the first call."""
    raised: list[BaseException] = []

    def call(*args: Any, **more: Any) -> Any:
        if not raised:
            raised.append(problem)
            raise problem
        return real(*args, **more)

    return call


@pytest.mark.parametrize(
    ("place", "problem", "expected"),
    [
        ((Step, "_logits"), MemoryError(), MemoryError),
        ((Step, "_logits"), KeyboardInterrupt(), KeyboardInterrupt),
        ((torch.Tensor, "backward"), RuntimeError("DefaultCPUAllocator: can't allocate memory"), ResourceError),
        ((embed, "encode"), MemoryError(), MemoryError),
        ((files, "file_digest"), OSError(5, "Input/output error"), OSError),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else type(value).__name__ if value else None,
)
def test_memory_disk_and_interrupts(
    tmp_path: Path,
    finished: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    place: tuple[Any, str],
    problem: BaseException,
    expected: type[BaseException],
) -> None:
    fed = make(tmp_path / "run")
    fed.submit("north", classes=["a"])
    with monkeypatch.context() as patch:
        patch.setattr(*place, once(problem, getattr(*place)))
        with pytest.raises(expected):
            fed.settle()
    check(tmp_path / "run", finished)


def test_rows_that_cannot_be_trained_on_are_another_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be forgotten goes, though what is left cannot be learned from."""
    fed = make(tmp_path / "run")

    def diverged(*_: Any, **__: Any) -> None:
        raise TrainingError("the loss is nan")

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", diverged)
        with pytest.raises(TrainingError, match="nan"):
            fed.unlearn("north", classes=["a"])
    assert {client for client, _, _ in fed.uploads()} == {"south"}
