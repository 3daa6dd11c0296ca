"""A training computed in parts: every epoch alone, from the state before it, ends in the state the whole one had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from shards import shard
from splitwiper.config import Recipe
from splitwiper.config.training import OPTIMIZERS, SCHEDULES
from splitwiper.errors import DataError
from splitwiper.seeding import Stream, state_digest
from splitwiper.training.cache import Cache
from splitwiper.training.loop import Span, Training, state_of
from splitwiper.training.stepping import State
from splitwiper.wire import Label

LABELS = tuple(Label("", n) for n in range(3))
EPOCHS = 4


@pytest.fixture
def rows(tmp_path: Path) -> Cache:
    values = np.random.default_rng(0).normal(size=(37, 6)).astype(np.float32)
    return Cache([shard(tmp_path / "shard", values, LABELS)], LABELS, names=["z"])


class Net(nn.Module):
    """Has whatever a state could leave out: batch norm, a weight used twice, a frozen one, a scalar, one that no loss
    reaches, and a buffer that training changes and that is not in the state dict; and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(6), nn.Dropout(0.3)
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)
        self.two.weight = self.one.weight
        self.head, self.idle = nn.Linear(6, 3), nn.Linear(2, 2)
        self.head.bias.requires_grad_(False)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("drift", torch.zeros(6), persistent=False)

    def forward(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        x = self.norm(tensors["z"])
        if self.training:
            self.drift.mul_(0.9).add_(0.1 * x.detach().mean(0) + 0.05)
        logits: torch.Tensor = self.head(self.drop(torch.relu(self.two(torch.relu(self.one(x + self.drift))))))
        return self.scale * logits


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def run(rows: Cache, recipe: Recipe, span: Span | None = None, hook: bool = True) -> tuple[list[State], Net]:
    states: dict[int, State] = {}
    one = net()
    on_state = states.__setitem__ if hook else None
    Training(one, rows, recipe, epochs=EPOCHS, stream=Stream(1, "t"), what="test", on_state=on_state, span=span).run()
    assert list(states) == (list(range(span.first if span else 0, (span.last if span else EPOCHS) + 1)) if hook else [])
    return list(states.values()), one


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, "plain sgd"])
def test_every_epoch_alone_is_as_in_the_whole(rows: Cache, optimizer: str, schedule: str) -> None:
    more: dict[str, Any] = {"momentum": 0.0} if optimizer == "plain sgd" else {"clip": 0.5}
    recipe = Recipe(optimizer=optimizer.split()[-1], schedule=schedule, batch=8, lr=0.02, **more)
    states, whole = run(rows, recipe)
    assert state_digest(state_of(whole)) == state_digest(state_of(run(rows, recipe, hook=False)[1]))
    digests = [state_digest(state) for state in states]
    assert len(set(digests)) == EPOCHS + 1
    for epoch in range(EPOCHS):
        again, _ = run(rows, recipe, Span(epoch, epoch + 1, states[epoch]))
        assert [state_digest(state) for state in again] == digests[epoch : epoch + 2]
    again, end = run(rows, recipe, Span(1, EPOCHS, states[1]))
    assert [state_digest(state) for state in again] == digests[1:]
    assert state_digest(state_of(end)) == state_digest(state_of(whole))


def test_what_a_state_holds(rows: Cache) -> None:
    states, whole = run(rows, Recipe(optimizer="adam", batch=8))
    first, last = states[0], states[-1]
    assert not any(name.startswith("optimizer/") for name in first)
    assert {"net/drift", "net/norm.running_var", "net/scale"} <= first.keys() and "net/two.weight" not in first
    trained = {name for name, p in whole.named_parameters() if p.requires_grad and not name.startswith("idle")}
    kept = {f"optimizer/{name}/{key}" for name in trained for key in ("step", "exp_avg", "exp_avg_sq")}
    assert {name for name in last if name.startswith("optimizer/")} == kept
    assert float(last["optimizer/scale/step"]) == EPOCHS * 5
    assert torch.equal(last["net/scale"], whole.scale.detach())
    whole.scale.data.add_(1)
    assert not torch.equal(last["net/scale"], whole.scale.detach())  # a copy


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop("net/scale"), "the net has 'net/scale', and the state does not"),
        (lambda s: s.update({"net/more": torch.ones(1)}), "the state has 'net/more', and the net does not"),
        (lambda s: s.update({"strange": torch.ones(1)}), "the state has 'strange'"),
        (lambda s: s.update({"net/scale": torch.ones(2)}), r"'net/scale' is torch.float32 \[2\]"),
        (lambda s: s.update({"net/scale": torch.ones((), dtype=torch.float64)}), "torch.float64"),
        (lambda s: s.update({"optimizer/none/step": torch.ones(())}), "'optimizer/none/step', which sgd keeps"),
        (lambda s: s.update({"optimizer/scale/step": torch.ones(())}), "'optimizer/scale/step', which sgd keeps"),
        (
            lambda s: s.update({"optimizer/scale/momentum_buffer": torch.ones(3)}),
            r"float32 \[3\], not torch.float32 \[\]",
        ),
    ],
)
def test_a_state_of_another_net_is_refused(rows: Cache, change: Any, words: str) -> None:
    recipe = Recipe(batch=8)
    state = dict(run(rows, recipe)[0][1])
    change(state)
    with pytest.raises(DataError, match=words):
        run(rows, recipe, Span(1, 2, state), hook=False)


def test_a_part_of_the_optimisers_state_is_refused(rows: Cache) -> None:
    recipe = Recipe(batch=8, optimizer="adamw")
    state = dict(run(rows, recipe)[0][1])
    del state["optimizer/scale/exp_avg"]
    with pytest.raises(DataError, match="lacks a part for 'scale'"):
        run(rows, recipe, Span(1, 2, state), hook=False)
