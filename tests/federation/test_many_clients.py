"""Work and open files as clients become many."""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from splitwiper import ClientConfig, Config, Federation, ServerConfig, split
from splitwiper.errors import TrainingError
from splitwiper.models import mlp


def federation(path: Path, *, lr: float = 0.01) -> Federation:
    halves = split(mlp(4, 2, hidden=4, cut=4), at="stem", example=torch.zeros(1, 4))
    client = ClientConfig(epochs=2, head_width=0, lr=lr)
    return Federation(path, halves, Config(seed=1, server=ServerConfig(epochs=1), client=client))


def clients(count: int) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    return {f"c{i:03d}": (draw.normal(size=(4, 4)).astype(np.float32), ["a", "b"] * 2) for i in range(count)}


def calls(work: Callable[[], object]) -> int:
    """How many functions are called: a measure of work that no other process disturbs."""
    with cProfile.Profile() as profile:
        work()
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined, no-any-return]


@contextmanager
def few_files(spare: int) -> Iterator[None]:
    """Let this process open that many more files and no more."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(p.name) for p in Path("/proc/self/fd").iterdir()}
    free = [number for number in range(len(taken) + spare + 1) if number not in taken]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[spare], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_work_grows_with_the_number_of_clients_and_not_its_square(tmp_path: Path) -> None:
    federation(tmp_path / "first").learn(clients(1))  # what is done once in a process is done
    spent: dict[str, list[int]] = {"learn": [], "unlearn": [], "settle": [], "status": []}
    for count in (6, 12, 24):
        fed = federation(tmp_path / str(count))
        spent["learn"].append(calls(lambda f=fed, n=count: f.learn(clients(n))))  # type: ignore[misc]
        spent["unlearn"].append(calls(lambda f=fed: f.unlearn("c003", classes=["a"])))  # type: ignore[misc]
        spent["settle"].append(calls(fed.settle))
        spent["status"].append(calls(fed.status))
    for what, (one, two, four) in spent.items():
        assert four - two < 2.4 * (two - one), f"{what}: {one}, {two}, {four} calls"  # a square: four times


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_open_files_do_not_grow_with_the_number_of_clients(tmp_path: Path) -> None:
    data = clients(30)
    fed = federation(tmp_path / "run")
    fed.learn({"c000": data["c000"]})
    with few_files(16):
        fed.learn(data)
        fed.submit("c001", everything=True)
        fed.submit("c002", classes=["a"])
        fed.settle()
        assert fed.verify().exact
        assert fed.status().todo == ()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_clients_in_trouble_hold_no_files(tmp_path: Path) -> None:
    fed = federation(tmp_path / "run", lr=1e30)
    with few_files(16), pytest.raises(TrainingError, match="c000"):
        fed.learn(clients(30))
    assert len(fed.status().clients) == 30
