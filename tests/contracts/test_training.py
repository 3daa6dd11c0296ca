"""The contract of losses, optimisers and schedules, over all implementations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from federation.runs import assert_same, halves, recomputed, three, without
from shards import shard
from splitwiper import ClientConfig, Config, Federation, ServerConfig
from splitwiper.config import Recipe
from splitwiper.errors import ConfigError, TrainingError
from splitwiper.seeding import Stream, state_digest
from splitwiper.training.cache import Cache
from splitwiper.training.loop import Span, Training
from splitwiper.training.stepping import State
from splitwiper.wire import Label

OUTSIDE: dict[str, Any] = {
    "loss": "focal",
    "loss_args": {"gamma": 1.5},
    "optimizer": "ward_parts.training:SignDescent",
    "optimizer_args": {"beta": 0.8},
    "schedule": "ward_parts.training:Stairs",
    "schedule_args": {"parts": 4},
    "lr": 0.01,
}
PARTS: dict[str, dict[str, Any]] = {
    "sgd cosine": {},
    "adamw onecycle": {"optimizer": "adamw", "schedule": "onecycle"},
    "adam constant": {"optimizer": "adam", "schedule": "constant"},
    "outside": OUTSIDE,
    "torch": {
        "loss": "torch.nn:CrossEntropyLoss",
        "loss_args": {"label_smoothing": 0.1},
        "optimizer": "torch.optim:RMSprop",
        "optimizer_args": {"momentum": 0.9, "centered": True},
    },
}
LABELS = tuple(Label("", n) for n in range(3))
EPOCHS = 3


@pytest.fixture
def rows(tmp_path: Path) -> Cache:
    values = np.random.default_rng(0).normal(size=(37, 6)).astype(np.float32)
    return Cache([shard(tmp_path / "shard", values, LABELS)], LABELS, names=["z"])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3))

    def forward(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        logits: torch.Tensor = self.body(tensors["z"])
        return logits


def run(rows: Cache, recipe: Recipe, span: Span | None = None) -> list[State]:
    torch.manual_seed(0)
    states: dict[int, State] = {}
    Training(
        Net(), rows, recipe, epochs=EPOCHS, stream=Stream(1, "t"), what="test", on_state=states.__setitem__, span=span
    ).run()
    return list(states.values())


@pytest.mark.parametrize("name", PARTS)
def test_training_is_a_pure_function_that_any_epoch_can_continue(rows: Cache, name: str) -> None:
    recipe = Recipe(batch=8, **PARTS[name])
    states = run(rows, recipe)
    torch.rand(3)
    digests = [state_digest(state) for state in states]
    assert digests == [state_digest(state) for state in run(rows, recipe)] and len(set(digests)) == EPOCHS + 1
    for epoch in range(EPOCHS):
        again = run(rows, recipe, Span(epoch, epoch + 1, states[epoch]))
        assert [state_digest(state) for state in again] == digests[epoch : epoch + 2]


@pytest.mark.parametrize("name", ["outside", "torch"])
def test_learn_unlearn_verify(tmp_path: Path, name: str) -> None:
    data = three()
    x, y = data["north"]
    data["north"] = np.where((y == "bird")[:, None], 1e6 * x, x), y
    server = ServerConfig(epochs=3, batch=16, clip=1.0, transcript=True, **PARTS[name])
    client = ClientConfig(epochs=2, batch=8, slices=2, head_width=4, clip=1.0, **PARTS[name])
    seen: list[tuple[str, float]] = []

    def progress(what: str, _done: int, _total: int, /, loss: float | None = None) -> None:
        if loss is not None:
            seen.append((what, loss))

    fed = Federation(tmp_path / "run", halves(), Config(seed=5, server=server, client=client), progress=progress)
    fed.learn(data)
    assert {what for what, _ in seen} == {"server: training", *(f"{client}: pre-training" for client in data)}
    model = fed._server.store.model()
    assert model is not None and tuple(loss for what, loss in seen if what.startswith("server")) == model.losses
    receipt = fed.unlearn("north", classes=["bird"])
    never = fed.twin(tmp_path / "never")
    never.learn({**data, "north": without(data["north"], y != "bird")})
    assert_same(fed, never)
    assert fed.verify(receipt).exact and fed.verify().exact
    assert recomputed(fed._server, 2)[-1].exact
    told = receipt.fingerprint["server"]["loss"]
    if name == "outside":
        assert told.startswith('ward_parts.training:focal {"gamma":1.5} ') and told.endswith(" ward-parts 1.4")
    else:
        assert told.startswith('torch.nn:CrossEntropyLoss {"label_smoothing":0.1} ')


def half_loss(logits: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    return logits[:, 0]


def broken_loss(logits: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    raise KeyError("no such thing")


def late_nan(progress: float) -> float:
    return float("nan") if progress > 0.5 else 1.0


class Countless(torch.optim.SGD):
    """Counts its steps where nobody looks for them."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        super().step()
        self.param_groups[0]["weight_decay"] += 0.1


class Numbered(torch.optim.SGD):
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        super().step()
        for p in self.param_groups[0]["params"]:
            self.state[p]["count"] = 3


HERE = "contracts.test_training"


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"loss": f"{HERE}:half_loss"}, TrainingError, "must return the mean over the rows"),
        ({"loss": f"{HERE}:broken_loss"}, TrainingError, "failed .KeyError: 'no such thing'"),
        ({"loss": f"{HERE}:nothing"}, ConfigError, "cannot be imported"),
        ({"loss": f"{HERE}:LABELS"}, ConfigError, "neither a class nor a function"),
        ({"loss": f"{HERE}:half_loss", "loss_args": {"a": 1}}, ConfigError, "does not take the settings"),
        ({"schedule": f"{HERE}:late_nan"}, ConfigError, "returned nan at 0.5"),
        ({"optimizer": f"{HERE}:half_loss"}, ConfigError, "must be a torch.optim.Optimizer"),
        ({"optimizer": f"{HERE}:Countless"}, ConfigError, "changes its settings while it trains"),
        ({"optimizer": f"{HERE}:Numbered"}, ConfigError, "keeps count as int"),
    ],
)
def test_faults_of_parts_are_told_as_theirs(
    rows: Cache, given: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        run(rows, Recipe(batch=8, **given))
