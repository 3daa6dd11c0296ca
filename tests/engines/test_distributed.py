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

from engines.sharing import inputs_of, learned, settings, states
from federation.runs import three
from splitwiper import Federation, ModelConfig, split
from splitwiper.engines import make_engine
from splitwiper.engines.distributed import Distributed
from splitwiper.engines.job import Job
from splitwiper.errors import ConfigError
from splitwiper.server.training import Local, TrainingInputs
from splitwiper.store import files
from splitwiper.training.stepping import State

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found in /proc")


TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run"),
    *("--standalone", "--max-restarts=0", "--nproc-per-node={ranks}"),
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> TrainingInputs:
    return inputs_of(learned(tmp_path_factory.mktemp("runs") / "run"))


def ranks_below(folder: Path) -> list[int]:
    """The processes that compute a job in a folder."""
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

    class Killed(Distributed):
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
    assert len(engine.killed) == 4
    assert "starting over with 2 of them" in caplog.text
    assert not list(tmp_path.iterdir()) and gone(tmp_path)


def test_other_numerics_are_refused(inputs: TrainingInputs, tmp_path: Path) -> None:
    other = "MKL_DYNAMIC=0" if torch.backends.cpu.get_cpu_capability() == "DEFAULT" else "ATEN_CPU_CAPABILITY=default"
    command = ("env", other, *TORCHRUN)
    with pytest.raises(ConfigError, match="all processes that share a training need the same"):
        Distributed(2, command).train(inputs, folder=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.soak
def test_torchrun_starts_them(inputs: TrainingInputs, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert states(Distributed(2, TORCHRUN), inputs, tmp_path) == states(Local(), inputs, tmp_path)
    assert not caplog.text and not list(tmp_path.iterdir()) and gone(tmp_path)


def test_an_interrupt_ends_all_and_erases_all(inputs: TrainingInputs, tmp_path: Path) -> None:
    def interrupt() -> None:
        if len(ranks_below(tmp_path)) > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Distributed(2).train(inputs, folder=tmp_path, on_step=interrupt)
    assert not list(tmp_path.iterdir()) and gone(tmp_path)


def test_a_machine_that_cannot_start_them_trains_alone(
    inputs: TrainingInputs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Distributed(4, [sys.executable, "-c", "print('no more processes')"])
    assert states(broken, inputs, tmp_path)[1:] == states(Local(), inputs, tmp_path)[1:]
    assert "no more processes" in caplog.text


@pytest.mark.soak
def test_ranks_of_a_killed_process_end_and_their_files_are_erased(tmp_path: Path) -> None:
    program = (
        "from engines.test_distributed import *\n"
        f"fed = Federation({str(tmp_path / 'run')!r}, config=settings(epochs=2000), engine=Distributed(2))\n"
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
    reopened = Federation(tmp_path / "run")
    assert list(incoming.iterdir())
    reopened.unlearn("south", everything=True)
    assert not list(incoming.iterdir())


def test_a_network_without_a_name_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    halves = split(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), at="1", example=torch.zeros(1, 6))
    unnamed = replace(settings(), model=ModelConfig())
    fed = Federation(tmp_path / "run", halves, unnamed, engine=Distributed(2))
    with pytest.raises(ConfigError, match="other processes cannot make this network: name it in the settings"):
        fed.learn(three())
    assert not list((tmp_path / "run" / "server" / "incoming").iterdir())
    assert Federation(tmp_path / "run", halves).learn(three()).losses


def test_another_network_of_that_name_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    halves = split(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), at="1", example=torch.zeros(1, 6))
    fed = Federation(tmp_path / "run", halves, settings(), engine=Distributed(2))
    with pytest.raises(ConfigError, match="process 0 computes with network"):
        fed.learn(three())


def test_engines_that_cannot_be_meant() -> None:
    for name, ranks, words in (
        ("ray2", 1, "neither built in"),
        ("local", 2, "neither ranks"),
        ("distributed", 0, "ranks"),
    ):
        with pytest.raises(ConfigError, match=words):
            make_engine(name, ranks)
    with pytest.raises(ConfigError, match="not a list of words"):
        make_engine("splitwiper.engines.distributed:Distributed", 2, {"command": "srun torchrun"})


def test_modules_are_found_at_the_same_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, layer in (("first", "Tanh"), ("here", "ReLU")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ward_net.py").write_text(f"from torch import nn\nclass Middle(nn.{layer}): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path / "first"))
    monkeypatch.chdir(tmp_path / "here")
    fed = Federation(tmp_path / "run", config=settings(middle="ward_net:Middle"))
    fed.learn(three())
    assert states(Distributed(2), inputs_of(fed), tmp_path) == states(Local(), inputs_of(fed), tmp_path)


def test_why_processes_ended_is_said(inputs: TrainingInputs, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "output").write_text(
        "Traceback\n[rank1]: ValueError: of this\nRuntimeError: closed\nE1 api] failed (exitcode: 1)\n=====\n"
    )
    assert Job(tmp_path).last_words() == "[rank1]: ValueError: of this"
    with (tmp_path / "output").open("a") as file:
        file.write("E1 api] failed (exitcode: -9) local_rank: 1\n=====\n")
    assert Job(tmp_path).last_words() == "failed (exitcode: -9) local_rank: 1"
    absent = Distributed(2, ["/no/such/torchrun"])
    assert absent.train(inputs, folder=tmp_path).losses == Local().train(inputs, folder=tmp_path).losses
    assert "/no/such/torchrun cannot be started" in caplog.text


def test_an_erased_job_does_not_come_back(inputs: TrainingInputs, tmp_path: Path) -> None:
    job = Job(tmp_path / "job")
    job.folder.mkdir()
    assert not job.is_wanted()
    with files.locked(job.folder):
        assert job.is_wanted()
    files.erase_folder(job.folder)
    assert not job.is_wanted()
    with pytest.raises(FileNotFoundError):
        job.put_state("state-1", {"net/weight": torch.zeros(2)})
    with pytest.raises(FileNotFoundError):
        job.report(state=1)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_erased_though_a_process_still_writes(tmp_path: Path) -> None:
    program = "import sys, time\nend = time.time() + 2\nwhile time.time() < end: open(sys.argv[1], 'w').close()\n"
    folder = tmp_path / "job"
    folder.mkdir()
    process = subprocess.Popen([sys.executable, "-c", program, str(folder / "state")], stderr=subprocess.DEVNULL)
    while not (folder / "state").exists():
        time.sleep(0.01)
    files.erase_folder(folder)
    process.wait()
    assert not folder.exists()


@pytest.mark.soak
def test_a_lack_of_memory_leads_to_fewer_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large_net.py").write_text(
        "import os\n"
        "from torch import nn\n"
        "class Large(nn.Tanh):\n"
        "    def forward(self, x):\n"
        "        if os.environ.get('WORLD_SIZE', '1') != '1':\n"
        "            raise MemoryError('not enough memory')\n"
        "        return super().forward(x)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    fed = Federation(tmp_path / "run", config=settings(middle="large_net:Large"), engine=Distributed(2))
    assert fed.learn(three()).losses
