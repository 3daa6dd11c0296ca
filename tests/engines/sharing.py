"""A network and a run for tests of engines."""

from __future__ import annotations

import pkgutil
from pathlib import Path

from torch import nn

from federation.runs import three
from splitwiper import ClientConfig, Config, Federation, ModelConfig, ServerConfig
from splitwiper.seeding import state_digest
from splitwiper.server.training import Engine, TrainingInputs
from splitwiper.training.stepping import State


def hard(middle: str = "") -> nn.Sequential:
    """A network with what makes lanes hard: batch norm and dropout; and a layer by its import path, if one is given."""
    layers = [nn.Linear(6, 12), nn.ReLU(), nn.BatchNorm1d(12), nn.Dropout(0.2), nn.Linear(12, 8), nn.ReLU()]
    if middle:
        layers.insert(3, pkgutil.resolve_name(middle)())
    return nn.Sequential(*layers, nn.Linear(8, 3))


def settings(*, middle: str = "", **server: object) -> Config:
    args = {"middle": middle} if middle else {}
    model = ModelConfig(factory="engines.sharing:hard", args=args, inputs={"x": "float32[6]"}, at="1")
    given = {"epochs": 3, "batch": 64, "lanes": 4, "clip": 1.0, "threads": 1, **server}
    return Config(
        seed=5,
        model=model,
        server=ServerConfig(**given),
        client=ClientConfig(epochs=1, batch=8, head_width=4, keys="seeded"),
    )


def learned(run: Path, engine: Engine | None = None) -> Federation:
    fed = Federation(run, config=settings(transcript=True), engine=engine)
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
