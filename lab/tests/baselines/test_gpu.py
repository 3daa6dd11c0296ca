"""Baselines on a GPU: the same bits twice, retraining equal to never having had the rows, any net."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from baselines.small import digits, problem
from baselines.test_messages import digest_of
from splitwiper import split
from splitwiper_lab.baselines import FRAMEWORKS, Problem
from splitwiper_lab.baselines.sisa import sisa
from splitwiper_lab.baselines.unlearning import METHODS, Retraining

pytestmark = pytest.mark.gpu


def on_gpu(data: Any = None, **more: Any) -> Problem:
    return problem(data, client={"device": "cuda"}, device="cuda", **more)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("schedule", ["interleaved", "turns"])
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_retraining_is_never_having_had_the_rows(name: str, schedule: str, precision: str) -> None:
    kind = FRAMEWORKS[name](schedule=schedule)
    trained = kind.learn(on_gpu(precision=precision))
    assert digest_of(kind.learn(on_gpu(precision=precision))) == digest_of(trained)
    x, y = digits()["north"]
    left = {**digits(), "north": (x[y != 4], y[y != 4])}
    again = Retraining().unlearn(trained, trained.problem.choose("north", classes=[4]))
    assert digest_of(again) == digest_of(kind.learn(on_gpu(left, precision=precision)))
    assert all(cost.seconds > 0 for cost in trained.spent.values())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["vanilla", "u-shaped", "splitfed-v1"])
def test_every_way_runs(name: str, method: str) -> None:
    trained = FRAMEWORKS[name]().learn(on_gpu(precision="bfloat16"))
    left = METHODS[method]().unlearn(trained, trained.problem.choose("north", classes=[4]))
    assert left.network.evaluate(digits(20, first=60)).overall.rows == 60


class Viewing(nn.Module):
    """Insists on the order of its maps."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.body = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = self.body(torch.relu(self.stem(x)))
        return self.head(torch.relu(maps.view(len(maps), -1)))


def test_a_net_that_insists_on_its_order() -> None:
    halves = split(Viewing(), at="stem", example=torch.zeros(2, 1, 8, 8))
    for name in ("vanilla", "u-shaped"):
        FRAMEWORKS[name](start="scratch").learn(dataclasses.replace(on_gpu(epochs=1), halves=halves))


def test_sisa_is_exact() -> None:
    work = on_gpu(epochs=3)
    forgetting = work.choose("north", classes=[4])
    left, never = sisa(work, shards=2).unlearn(forgetting), sisa(work.without(forgetting), shards=2)
    assert left.state.keys() == never.state.keys()
    assert all(torch.equal(tensor, never.state[name]) for name, tensor in left.state.items())
