"""The contract of engines, over all implementations: what a training leads to does not depend on what computes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engines.sharing import inputs_of, learned, states
from federation.runs import assert_same, three, without
from splitwiper import Federation
from splitwiper.engines import make_engine
from splitwiper.errors import BusyError, UntrainableError
from splitwiper.server.training import Engine, Local, TrainedServerHalf, TrainingInputs
from splitwiper.store import exclusion

pytestmark = pytest.mark.computes


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> TrainingInputs:
    return inputs_of(learned(tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture(params=[("local", 1), ("distributed", 2), ("in-turns", 1)], ids=lambda kind: kind[0])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    name, ranks = request.param
    return make_engine(name, ranks, {"turn": str(tmp_path_factory.mktemp("turn"))} if name == "in-turns" else None)


def test_states_results_and_errors_are_those_of_this_process(
    engine: Engine, inputs: TrainingInputs, tmp_path: Path
) -> None:
    assert states(engine, inputs, tmp_path) == states(Local(), inputs, tmp_path)
    diverging, messages = replace(inputs, config=replace(inputs.config, lr=1e30, clip=0.0)), []
    for one in (engine, Local()):
        with pytest.raises(UntrainableError) as caught:
            one.train(diverging, folder=tmp_path)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert not list(tmp_path.iterdir())


def test_an_exception_between_steps_ends_it(engine: Engine, inputs: TrainingInputs, tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.train(inputs, folder=tmp_path, on_step=interrupt)
    assert not list(tmp_path.iterdir())


def test_a_run_forgets_with_it_and_verifies_without(engine: Engine, tmp_path: Path) -> None:
    learned(tmp_path / "run")
    fed = Federation(tmp_path / "run", engine=engine)
    receipt = fed.unlearn("north", classes=["bird"])
    assert not list((fed.path / "server" / "incoming").iterdir())
    alone = Federation(fed.path)
    assert alone.verify(receipt).exact and alone.verify().exact
    data = three()
    never = alone.twin(tmp_path / "never")
    never.learn({**data, "north": without(data["north"], data["north"][1] != "bird")})
    assert_same(alone, never)


def test_a_fault_of_an_engine_takes_nobodys_rows(tmp_path: Path) -> None:
    class Broken:
        def train(self, inputs: TrainingInputs, **rest: object) -> TrainedServerHalf:
            raise UntrainableError("server training: a batch of 64 rows could not be computed (libfast.so not found).")

    learned(tmp_path / "run")
    fed = Federation(tmp_path / "run", engine=Broken())
    with pytest.raises(BusyError, match="fails with this engine"):
        fed.unlearn("north", classes=["bird"])
    assert set(fed._server.store.clients()) == {"north", "south", "west"}
    assert all(exclusion.taken_away(fed._server.store, name) is None for name in ("north", "south", "west"))
    assert Federation(fed.path).settle()
