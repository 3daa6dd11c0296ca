"""Faults and results that are not the training's own: they blame nobody, erase nothing and change no bit."""

import _thread
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from federation.runs import FEATURES, assert_same, settings, three
from federation.test_pitfalls import cut_of
from federation.test_threads import PATIENCE, beside, idle_thread, in_thread
from splitwiper import Federation, Halves, split
from splitwiper.client import Client
from splitwiper.errors import BusyError, TrainingError, UntrainableError
from splitwiper.exclusive import Company, own, own_pool
from splitwiper.splitting import legal_cuts
from splitwiper.training.stepping import Step

FLASH = torch.backends.cuda.enable_flash_sdp  # this switch holds for the CPU, too
Beside = Callable[[], AbstractContextManager[None]]


class Asking(nn.Module):
    """What it computes depends on a switch, as attention does."""

    def forward(self, x: Tensor) -> Tensor:
        return x if torch.backends.cuda.flash_sdp_enabled() else x * 1.5


def asking() -> Halves:
    torch.manual_seed(0)
    layers = [nn.Linear(FEATURES, 8), Asking(), nn.Linear(8, 8), nn.ReLU(), Asking(), nn.Linear(8, 3)]
    return cut_of(nn.Sequential(*layers), "2", torch.zeros(1, FEATURES))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, each made once and copied for every test: see `quiet` and `loud`."""
    folder = tmp_path_factory.mktemp("made")
    quiet = Federation(folder / "quiet", asking(), settings())
    quiet.learn(three())
    quiet.twin(folder / "loud").learn(three())
    quiet.unlearn("north", classes=["bird"])
    return folder


@pytest.fixture
def quiet(made: Path, tmp_path: Path) -> Federation:
    """A run that nothing disturbs, and that has forgotten a class."""
    return Federation(shutil.copytree(made / "quiet", tmp_path / "quiet"), asking())


@pytest.fixture
def loud(made: Path, tmp_path: Path) -> Federation:
    """The same before it forgets."""
    return Federation(shutil.copytree(made / "loud", tmp_path / "loud"), asking())


@pytest.fixture
def _usual() -> Iterator[None]:
    yield
    FLASH(True)
    torch.set_default_dtype(torch.float32)


def within(monkeypatch: pytest.MonkeyPatch, where: str, act: Callable[[Step], object], *, times: int = 1) -> list[int]:
    """Have something happen in the middle of an epoch: before the second step of the first ones there."""
    real, steps = Step.__call__, list[int]()

    def step(self: Step, *batch: Any) -> None:
        if where in self._what:
            steps.append(1)
            if 2 <= len(steps) < 2 + times:
                act(self)
        real(self, *batch)

    monkeypatch.setattr(Step, "__call__", step)
    return steps


def raising(problem: Exception) -> Callable[..., Any]:
    def act(*_: object) -> None:
        raise problem

    return act


def moved_for_a_moment(_: object) -> None:
    """Fail as a net does where another thread moves the default dtype, and moves it back at once."""
    in_thread(lambda: torch.set_default_dtype(torch.float64))
    in_thread(lambda: torch.set_default_dtype(torch.float32))
    raise RuntimeError("expected Float, got Double")


@pytest.mark.parametrize("where", ["client", "server"])
def test_a_moment_of_another_thread_withdraws_nobody(
    quiet: Federation, loud: Federation, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    steps = within(monkeypatch, where, moved_for_a_moment)
    with idle_thread():
        assert loud.unlearn("north", classes=["bird"]).exact
    assert steps
    assert_same(quiet, loud)


@pytest.mark.parametrize("wrapped", [False, True], ids=["handler", "partial"])
@pytest.mark.parametrize("where", ["client", "server"])
def test_what_a_signal_handler_raises_is_passed_on(
    quiet: Federation, loud: Federation, monkeypatch: pytest.MonkeyPatch, where: str, wrapped: bool
) -> None:
    """It asks for an end; even where it comes as often as there are steps, it is not the rows' fault."""
    handler = raising(RuntimeError("timed out"))
    before = signal.signal(signal.SIGUSR1, partial(handler) if wrapped else handler)
    real = nn.Linear.forward

    def forward(self: nn.Linear, x: Tensor) -> Tensor:
        if armed:
            armed.pop()
            signal.raise_signal(signal.SIGUSR1)
        return real(self, x)

    armed = list[int]()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(nn.Linear, "forward", forward)
            within(patch, where, lambda _: armed.append(1), times=1 if wrapped else 1000)
            with pytest.raises(RuntimeError, match=r"^timed out$") as told:
                loud.unlearn("north", classes=["bird"])
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not isinstance(told.value, TrainingError)
    assert any(client == "north" for client, _, _ in loud.uploads())
    loud.settle()
    assert_same(quiet, loud)


@pytest.mark.parametrize("beside_it", [idle_thread, nullcontext])
@pytest.mark.parametrize("where", ["client", "server"])
def test_a_loss_that_is_infinite_once_withdraws_nobody(
    quiet: Federation, loud: Federation, monkeypatch: pytest.MonkeyPatch, where: str, beside_it: Beside
) -> None:
    def act(step: Step) -> None:
        step.total += torch.inf

    with beside_it(), monkeypatch.context() as patch:
        within(patch, where, act)
        if beside_it is idle_thread:
            loud.unlearn("north", classes=["bird"])
        else:
            with pytest.raises(BusyError, match="no result is certain"):
                loud.unlearn("north", classes=["bird"])
            assert any(client == "north" for client, _, _ in loud.uploads())
            loud.settle()
    assert_same(quiet, loud)


@pytest.mark.parametrize("beside_it", [idle_thread, nullcontext])
def test_a_fault_that_repeats_is_the_rows_own(
    loud: Federation, monkeypatch: pytest.MonkeyPatch, beside_it: Beside
) -> None:
    """Whoever asked to be forgotten is forgotten, also beside other threads."""

    def step(self: Step, *batch: Any) -> None:
        if "north" in self._what:
            raise UntrainableError(f"this cannot be trained on, says {object()}")

    monkeypatch.setattr(Step, "__call__", step)
    with beside_it(), pytest.raises(UntrainableError, match="cannot be trained on"):
        loud.unlearn("north", classes=["bird"])
    assert not any(client == "north" for client, _, _ in loud.uploads())


def test_a_server_erases_no_shard_for_a_training_that_fails_once(
    quiet: Federation, loud: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    from splitwiper.server import training

    with monkeypatch.context() as patch:
        real, failed = training._check_finite, list[int]()

        def check(*given: Any) -> None:
            if not failed:
                failed.append(1)
                raise UntrainableError("a weight is not finite")
            real(*given)

        patch.setattr(training, "_check_finite", check)
        with pytest.raises(BusyError, match="server training"):
            loud.unlearn("north", classes=["bird"])
    assert failed and len(loud.uploads()) == 3
    loud.settle()
    assert_same(quiet, loud)


def test_a_client_withdraws_nothing_for_an_embedding_that_fails_once(
    quiet: Federation, loud: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    from splitwiper.client import embed
    from splitwiper.wire.codecs import bounded

    checked = list[int]()

    def once(values: Tensor, *rest: Any) -> bool:
        checked.append(1)
        return len(checked) > 1 and bounded(values, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(embed, "bounded", once)
        with pytest.raises(BusyError, match="client 'north'"):
            loud.unlearn("north", classes=["bird"])
    assert checked and any(client == "north" for client, _, _ in loud.uploads())
    loud.settle()
    assert_same(quiet, loud)


@pytest.mark.usefixtures("_usual")
@pytest.mark.parametrize("where", ["client", "server"])
def test_a_switch_that_is_moved_and_put_back_within_an_epoch(
    quiet: Federation, loud: Federation, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    real, steps = Step.__call__, list[int]()

    def step(self: Step, *batch: Any) -> None:
        first = where in self._what and not steps
        if first:
            steps.append(1)
            in_thread(lambda: FLASH(False))
        real(self, *batch)
        if first:
            in_thread(lambda: FLASH(True))

    monkeypatch.setattr(Step, "__call__", step)
    with idle_thread():
        assert loud.unlearn("north", classes=["bird"]).exact
    assert steps
    assert_same(quiet, loud)


@pytest.mark.usefixtures("_usual")
def test_a_switch_that_is_moved_in_the_same_way_every_time_is_refused(
    loud: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Step.__call__

    def step(self: Step, *batch: Any) -> None:
        in_thread(lambda: FLASH(False))
        real(self, *batch)

    with idle_thread(), monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", step)
        with pytest.raises(BusyError, match="no result is certain"):
            loud.unlearn("north", classes=["bird"])
    assert len(loud.uploads()) == 3 and loud.settle() and loud.verify().exact


@pytest.mark.usefixtures("_usual")
def test_verify_beside_a_thread_that_moves_a_switch_finds_no_mismatch(quiet: Federation) -> None:
    def toggle() -> None:
        FLASH(False)
        time.sleep(2e-3)
        FLASH(True)
        time.sleep(2e-3)

    with beside(toggle):
        for _ in range(3):
            try:
                assert quiet.verify().exact
            except BusyError as problem:
                assert "no result is certain" in str(problem)
    assert quiet.verify().exact


@pytest.mark.parametrize(
    ("wrong", "outcome"),
    [(["a"], "exact"), (["a", "b", "c"], "busy"), (["a", "a"], "mismatch"), (["a", "b", "a"], "mismatch")],
)
def test_verify_calls_nothing_a_mismatch_that_differs_every_time(
    quiet: Federation, monkeypatch: pytest.MonkeyPatch, wrong: list[str], outcome: str
) -> None:
    real, left = Client.recompute, list(wrong)

    def recompute(self: Client) -> tuple[dict[str, Tensor], str]:
        state, shard = real(self)
        return state, left.pop(0) if self.name == "north" and left else shard

    monkeypatch.setattr(Client, "recompute", recompute)
    with idle_thread():
        if outcome == "busy":
            with pytest.raises(BusyError):
                quiet.verify()
        else:
            assert quiet.verify().outcome == outcome
    left[:] = ["a"]
    assert quiet.verify().outcome == "mismatch"  # where nothing else runs, once is enough


# --- which threads are known -------------------------------------------------------------------------------


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()
    deadline = time.monotonic() + PATIENCE
    while Company().look() and time.monotonic() < deadline:
        time.sleep(0.01)


class Job(threading.Thread):
    """As `IPython.lib.backgroundjobs` has them: it runs what the user wrote."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(name="foreign")
        self._work = work

    def run(self) -> None:
        self._work()


def start_raw(work: Callable[[], object]) -> None:
    begun = threading.Event()
    _thread.start_new_thread(lambda: (begun.set(), work()), ())
    assert begun.wait(PATIENCE)


@pytest.mark.parametrize(
    "start",
    [
        lambda work: threading.Thread(target=work, name="foreign").start(),
        lambda work: ThreadPoolExecutor(1, thread_name_prefix="foreign").submit(work),
        lambda work: ThreadPoolExecutor(1, thread_name_prefix="transcription").submit(work),
        lambda work: ThreadPoolExecutor(1, thread_name_prefix="lease-renewal").submit(work),
        lambda work: type("Job", (Job,), {"__module__": "IPython.lib.backgroundjobs"})(work).start(),
        lambda work: type("Heartbeat", (Job,), {"__module__": "ipykernel.heartbeat"})(work).start(),
        start_raw,
    ],
)
def test_threads_of_others_are_company(stop: threading.Event, start: Callable[[Any], object]) -> None:
    alone = Company()
    assert not alone.look()
    start(stop.wait)
    assert alone.look() and Company().look()


def test_own_threads_and_the_kernels_are_not(stop: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    class Heartbeat(Job):
        pass

    module = ModuleType("ipykernel.heartbeat")
    module.Heartbeat = Heartbeat  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ipykernel.heartbeat", module)
    company = Company()
    Heartbeat(stop.wait).start()
    own(threading.Thread(target=stop.wait, name="foreign")).start()
    with own_pool(3) as pool:
        assert not company.look() and not Company().look()
        pool.submit(stop.wait)
        assert not company.look()
        stop.set()


# --- cutting, and trying rows ------------------------------------------------------------------------------


def dropping() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 3))


@pytest.mark.parametrize("cut", [lambda m, x: split(m, at="1", example=x), legal_cuts])
def test_a_cut_beside_a_thread_that_draws_blames_the_thread(cut: Callable[..., object]) -> None:
    with beside(lambda: torch.rand(3)), pytest.raises(BusyError, match="other threads"):
        for _ in range(20):  # it may go well
            cut(dropping(), torch.zeros(1, FEATURES))


FAILURES = "SPLITWIPER_TEST_FAILURES"


class Failing(nn.Module):
    """Fails as often as it is told."""

    def forward(self, x: Tensor) -> Tensor:
        left = os.environ.get(FAILURES, "")  # outside the code and constants that a network is known by
        if left:
            os.environ[FAILURES] = left[:-1]
            raise RuntimeError("expected Float, got Double")
        return x


def test_a_moment_of_another_thread_blames_neither_the_net_nor_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 8), Failing(), nn.ReLU(), nn.Linear(8, 3))
    with idle_thread():
        monkeypatch.setenv(FAILURES, "x")
        cut = split(model, at="2", example=torch.zeros(1, FEATURES))
        fed = Federation(tmp_path / "run", cut, settings())
        monkeypatch.setenv(FAILURES, "x")
        fed.learn(three())
        monkeypatch.setenv(FAILURES, "x" * 10_000)
        with pytest.raises(ValueError, match="the client half cannot take rows"):
            fed.learn({"east": (np.zeros((3, FEATURES), np.float32), np.array(["cat", "dog", "eel"]))})
    monkeypatch.delenv(FAILURES)
    assert fed.verify().exact


def test_a_signal_while_cutting_is_passed_on() -> None:
    class Signalled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            signal.raise_signal(signal.SIGUSR1)
            return x

    before = signal.signal(signal.SIGUSR1, raising(ValueError("timed out")))
    try:
        with pytest.raises(ValueError, match=r"^timed out$"):
            split(nn.Sequential(Signalled(), nn.Linear(4, 8), nn.Linear(8, 3)), at="1", example=torch.zeros(1, 4))
    finally:
        signal.signal(signal.SIGUSR1, before)
