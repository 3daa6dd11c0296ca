"""The engine that shares a training among processes: the same bits, whatever happens to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from engines.sharing import inputs_of, learned, net, settings, states
from federation.runs import three
from splitwiper import Federation, split
from splitwiper.engines import make_engine
from splitwiper.engines.torchrun import Torchrun
from splitwiper.errors import ConfigError
from splitwiper.server.training import Local, TrainingInputs
from splitwiper.training.stepping import State

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="torchrun's processes are found in /proc")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> TrainingInputs:
    return inputs_of(learned(tmp_path_factory.mktemp("runs") / "run"))


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
    inputs: TrainingInputs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = states(Local(), inputs, tmp_path)

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
    assert states(engine, inputs, tmp_path) == expected
    assert len(engine.killed) == 5  # torchrun, and four ranks
    assert "starting over with 2 of them" in caplog.text
    assert not list(tmp_path.iterdir()) and gone(tmp_path)


def test_other_numerics_are_refused(inputs: TrainingInputs, tmp_path: Path) -> None:
    command = ("env", "ATEN_CPU_CAPABILITY=default", *Torchrun(2)._command)
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        command = ("env", "MKL_DYNAMIC=0", *Torchrun(2)._command)
    with pytest.raises(ConfigError, match="all processes that share a training need the same"):
        Torchrun(2, command).train(inputs, folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_interrupt_ends_all_and_erases_all(inputs: TrainingInputs, tmp_path: Path) -> None:
    def interrupt() -> None:
        if len(ranks_below(tmp_path)) > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Torchrun(2).train(inputs, folder=tmp_path, on_step=interrupt)
    assert not list(tmp_path.iterdir()) and gone(tmp_path)


def test_a_machine_that_cannot_start_them_trains_alone(
    inputs: TrainingInputs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Torchrun(4, [sys.executable, "-c", "print('no more processes')"])
    assert states(broken, inputs, tmp_path)[1:] == states(Local(), inputs, tmp_path)[1:]
    assert "no more processes" in caplog.text


@pytest.mark.soak
def test_ranks_of_a_killed_process_end_and_their_files_are_erased(tmp_path: Path) -> None:
    program = (
        "from engines.test_torchrun import *\n"
        f"fed = Federation({str(tmp_path / 'run')!r}, net(), settings(epochs=2000), engine=Torchrun(2))\n"
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
    fed = Federation(tmp_path / "run", halves, settings(), engine=Torchrun(2))
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
