"""A network and a run for tests of engines."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from federation.runs import three
from splitwiper import ClientConfig, Config, Federation, Halves, ServerConfig, split
from splitwiper.seeding import state_digest
from splitwiper.server.training import Engine, TrainingInputs
from splitwiper.training.stepping import State


def net() -> Halves:
    """A network with what makes lanes hard: batch norm and dropout."""
    torch.manual_seed(0)
    layers = (nn.Linear(6, 12), nn.ReLU(), nn.BatchNorm1d(12), nn.Dropout(0.2), nn.Linear(12, 8), nn.ReLU())
    return split(nn.Sequential(*layers, nn.Linear(8, 3)), at="1", example=torch.zeros(1, 6))


def settings(**server: object) -> Config:
    given = {"epochs": 3, "batch": 64, "lanes": 4, "clip": 1.0, "threads": 1, **server}
    return Config(
        seed=5, server=ServerConfig(**given), client=ClientConfig(epochs=1, batch=8, head_width=4, keys="seeded")
    )


def learned(run: Path, engine: Engine | None = None) -> Federation:
    fed = Federation(run, net(), settings(transcript=True), engine=engine)
    fed.learn(three())
    return fed


def inputs_of(fed: Federation) -> TrainingInputs:
    return fed._server.inputs(fed._server.store.shards())


def states(engine: Engine, inputs: TrainingInputs, folder: Path) -> tuple[dict[int, str], str, tuple[float, ...]]:
    """The digest of the state after each epoch, of the result, and the losses."""
    seen: dict[int, str] = {}

    def note(done: int, state: State) -> None:
        assert seen.get(done) in (None, state_digest(state))  # starting over leads through the same states
        seen[done] = state_digest(state)

    trained = engine.train(inputs, folder=folder, on_state=note)
    return seen, state_digest(trained.state), trained.losses
