"""The engine that shares a training among processes: the same bits, whatever happens to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from federation.runs import three
from splitwiper import ClientConfig, Config, Federation, Halves, ServerConfig, split
from splitwiper.engines import make_engine
from splitwiper.engines.torchrun import Torchrun
from splitwiper.errors import ConfigError, UntrainableError
from splitwiper.seeding import state_digest
from splitwiper.server.training import Engine, Local, TrainingInputs
from splitwiper.training.stepping import State

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="torchrun's processes are found in /proc")


def net() -> Halves:
    """A network with what makes lanes hard: batch norm and dropout."""
    torch.manual_seed(0)
    layers = (nn.Linear(6, 12), nn.ReLU(), nn.BatchNorm1d(12), nn.Dropout(0.2), nn.Linear(12, 8), nn.ReLU())
    return split(nn.Sequential(*layers, nn.Linear(8, 3)), at="1", example=torch.zeros(1, 6))


def config(**server: object) -> Config:
    given = {"epochs": 3, "batch": 64, "lanes": 4, "clip": 1.0, "threads": 1, **server}
    return Config(
        seed=5, server=ServerConfig(**given), client=ClientConfig(epochs=1, batch=8, head_width=4, keys="seeded")
    )


def inputs(fed: Federation) -> TrainingInputs:
    return fed._server.inputs(fed._server.store.shards())


def states(engine: Engine, what: TrainingInputs, folder: Path) -> tuple[dict[int, str], str, tuple[float, ...]]:
    """The digest of the state after each epoch, of the result, and the losses."""
    seen: dict[int, str] = {}

    def note(done: int, state: State) -> None:
        assert seen.get(done) in (None, state_digest(state))  # starting over leads through the same states
        seen[done] = state_digest(state)

    trained = engine.train(what, folder=folder, on_state=note)
    return seen, state_digest(trained.state), trained.losses


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    made = Federation(tmp_path_factory.mktemp("runs") / "run", net(), config(transcript=True))
    made.learn(three())
    return made


def ranks_below(folder: Path) -> list[int]:
    """The processes that compute a job in a folder, and torchrun itself first."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(folder) in words and "splitwiper.engines.rank" in words:
                found.append(int(entry.name))
    return sorted(found)


def gone(folder: Path) -> bool:
    """Whether the processes of a job end within seconds."""
    end = time.monotonic() + 60
    while ranks_below(folder) and time.monotonic() < end:
        time.sleep(0.1)
    return not ranks_below(folder)


def test_a_killed_rank_and_half_as_many_lead_to_the_same_bits(
    fed: Federation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    what = inputs(fed)
    expected = states(Local(), what, tmp_path)

    class Killed(Torchrun):
        """Kills the last rank of the first team once it has trained for an epoch."""

        def train(self, *args: object, on_state, **rest: object) -> object:
            def and_kill(done: int, state: State) -> None:
                on_state(done, state)
                if done == 1 and not self.killed:
                    self.killed = ranks_below(tmp_path)
                    os.kill(self.killed[-1], signal.SIGKILL)

            self.killed: list[int] = []
            return super().train(*args, on_state=and_kill, **rest)

    engine = Killed(5)  # of which four can share four lanes
    assert states(engine, what, tmp_path) == expected
    assert len(engine.killed) == 5  # torchrun, and four ranks
    assert "starting over with 2 of them" in caplog.text
    assert not list(tmp_path.iterdir()) and gone(tmp_path)


def test_what_two_computed_one_verifies(fed: Federation) -> None:
    shared = Federation(fed.path, net(), engine=make_engine("torchrun", 2))
    receipt = shared.unlearn("north", classes=["bird"])
    alone = Federation(fed.path, net())
    assert alone.verify(receipt).exact and alone.verify().exact
    assert not list((fed.path / "server" / "incoming").iterdir())


def test_the_error_is_that_of_one_process(fed: Federation, tmp_path: Path) -> None:
    what = inputs(fed)
    what = replace(what, config=replace(what.config, lr=1e30, clip=0.0))
    messages = []
    for engine in (Local(), Torchrun(2)):
        with pytest.raises(UntrainableError) as caught:
            engine.train(what, folder=tmp_path)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and not list(tmp_path.iterdir())


def test_other_numerics_are_refused(fed: Federation, tmp_path: Path) -> None:
    command = ("env", "ATEN_CPU_CAPABILITY=default", *Torchrun(2)._command)
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        command = ("env", "MKL_DYNAMIC=0", *Torchrun(2)._command)
    with pytest.raises(ConfigError, match="all processes that share a training need the same"):
        Torchrun(2, command).train(inputs(fed), folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_interrupt_ends_all_and_erases_all(fed: Federation, tmp_path: Path) -> None:
    def interrupt() -> None:
        if len(ranks_below(tmp_path)) > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Torchrun(2).train(inputs(fed), folder=tmp_path, on_step=interrupt)
    assert not list(tmp_path.iterdir()) and gone(tmp_path)


def test_a_machine_that_cannot_start_them_trains_alone(
    fed: Federation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    what = inputs(fed)
    broken = Torchrun(4, [sys.executable, "-c", "print('no more processes')"])
    assert states(broken, what, tmp_path)[1:] == states(Local(), what, tmp_path)[1:]
    assert "no more processes" in caplog.text


@pytest.mark.soak
def test_ranks_of_a_killed_process_end_and_their_files_are_erased(tmp_path: Path) -> None:
    program = (
        "from engines.test_torchrun import *\n"
        f"fed = Federation({str(tmp_path / 'run')!r}, net(), config(epochs=2000), engine=Torchrun(2))\n"
        "fed.learn(three())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    incoming, end = tmp_path / "run" / "server" / "incoming", time.monotonic() + 120
    while not (list(incoming.glob("job-*/events")) if incoming.is_dir() else []):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.1)
    process.kill()
    process.wait()
    assert gone(incoming)
    reopened = Federation(tmp_path / "run", net())
    assert list(incoming.iterdir())
    reopened.unlearn("south", everything=True)
    assert not list(incoming.iterdir())


def test_networks_that_cannot_be_sent(tmp_path: Path) -> None:
    class Local(nn.ReLU):
        pass

    torch.manual_seed(0)
    halves = split(
        nn.Sequential(nn.Linear(6, 8), nn.ReLU(), Local(), nn.Linear(8, 3)), at="1", example=torch.zeros(1, 6)
    )
    fed = Federation(tmp_path / "run", halves, config(), engine=Torchrun(2))
    with pytest.raises(ConfigError, match="cannot be sent to another process"):
        fed.learn(three())
    assert Federation(tmp_path / "run", halves).learn(three()).losses


def test_engines_that_cannot_be_meant() -> None:
    for name, ranks, words in (
        ("ray2", 1, "neither built in"),
        ("local", 2, "neither ranks"),
        ("torchrun", 0, "ranks"),
    ):
        with pytest.raises(ConfigError, match=words):
            make_engine(name, ranks)
